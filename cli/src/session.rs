//! One run of the program: its flags, its streams, and the manager it talks to, looked up when first needed.

use crate::args::{Format, Globals};
use crate::client::Client;
use crate::error::Error;
use crate::kubeconfig::{Access, Lookup};
use crate::out::{Out, Stream};
use jiff::Timestamp;
use std::io::Read;

/// What every command works with.
pub(crate) struct Session {
    globals: Globals,
    /// Where answers and notes go.
    pub(crate) out: Out,
    /// Standard input.
    pub(crate) stdin: Box<dyn Read + Send>,
    access: Option<Access>,
    client: Option<Client>,
}

impl Session {
    /// A run with these flags and streams.
    pub(crate) fn new(globals: Globals, out: Out, stdin: Box<dyn Read + Send>) -> Self {
        Self { globals, out, stdin, access: None, client: None }
    }

    /// The wanted format, if one is.
    pub(crate) fn format(&self) -> Option<Format> {
        self.globals.output
    }

    /// How documents that come one by one are wanted, if machines are to read them.
    pub(crate) fn stream(&self) -> Option<Stream> {
        match self.globals.output? {
            Format::Json => Some(Stream::Json),
            Format::Yaml => Some(Stream::Yaml),
            Format::Wide | Format::Name | Format::Text => None,
        }
    }

    /// The namespace of the command line, if one is named there.
    pub(crate) fn named_namespace(&self) -> Option<&str> {
        self.globals.namespace.as_deref()
    }

    /// The namespace to use.
    pub(crate) fn namespace(&mut self) -> Result<String, Error> {
        match &self.globals.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(self.access()?.namespace.clone()),
        }
    }

    /// The client of the manager; cheap to ask for again.
    pub(crate) fn client(&mut self) -> Result<Client, Error> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new(self.access()?)?;
        self.client = Some(client.clone());
        Ok(client)
    }

    /// Now, for ages.
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn access(&mut self) -> Result<&Access, Error> {
        if self.access.is_none() {
            let lookup = Lookup {
                flag: self.globals.kubeconfig.clone(),
                variable: std::env::var("KUBECONFIG").ok(),
                home: std::env::home_dir(),
                directory: std::path::PathBuf::from("."),
                context: self.globals.context.clone(),
            };
            self.access = Some(lookup.access()?);
        }
        Ok(self.access.as_ref().expect("just looked up"))
    }
}

#[cfg(test)]
impl Session {
    /// A run that talks to `server` and whose streams a test reads.
    pub(crate) fn for_test(
        access: Access,
        globals: Globals,
        stdin: &str,
    ) -> (Self, crate::out::Captured, crate::out::Captured) {
        let (out, answers, notes) = Out::captured();
        let stdin: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(stdin.as_bytes().to_vec()));
        let mut session = Self::new(globals, out, stdin);
        session.access = Some(access);
        (session, answers, notes)
    }
}
