//! One run of the program: its flags, its streams, and its connection to the manager, made when first needed.

use crate::args::{Format, Globals};
use crate::client::Client;
use crate::client::kubeconfig::{Access, Lookup};
use crate::error::Error;
use crate::output::streams::{DocumentFormat, Streams};
use jiff::Timestamp;
use std::io::Read;
use std::path::PathBuf;

pub(crate) struct Session {
    globals: Globals,
    pub(crate) out: Streams,
    pub(crate) stdin: Box<dyn Read + Send>,
    access: Option<Access>,
    client: Option<Client>,
}

impl Session {
    pub(crate) fn new(globals: Globals, mut out: Streams, stdin: Box<dyn Read + Send>) -> Self {
        out.template = globals.output.as_ref().and_then(|output| output.template.clone());
        Self { globals, out, stdin, access: None, client: None }
    }

    /// `--output`, if given. A template shows JSON documents.
    pub(crate) fn format(&self) -> Option<Format> {
        self.globals.output.as_ref().map(|output| output.format)
    }

    /// How to write several documents, if `--output` asks for documents.
    pub(crate) fn document_format(&self) -> Option<DocumentFormat> {
        match self.format()? {
            Format::Json => Some(DocumentFormat::JsonLines),
            Format::Yaml => Some(DocumentFormat::YamlStream),
            Format::Wide | Format::Name | Format::Text => None,
        }
    }

    /// `--namespace`, if given.
    pub(crate) fn named_namespace(&self) -> Option<&str> {
        self.globals.namespace.as_deref()
    }

    /// `--namespace`, or else the kubeconfig's. Fails if a kubeconfig is needed and can't be used.
    pub(crate) fn namespace(&mut self) -> Result<String, Error> {
        match &self.globals.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(self.access()?.namespace.clone()),
        }
    }

    /// The manager's client; made once. Fails if there is no usable kubeconfig.
    pub(crate) fn client(&mut self) -> Result<Client, Error> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new(self.access()?)?;
        self.client = Some(client.clone());
        Ok(client)
    }

    /// `--kubeconfig` and `--context`, for a command that asks another cluster than the manager.
    pub(crate) fn named_cluster(&self) -> (Option<PathBuf>, Option<String>) {
        (self.globals.kubeconfig.clone(), self.globals.context.clone())
    }

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
    /// A session with the manager of `access`; a test reads its answers and notes.
    pub(crate) fn for_test(
        access: Access,
        globals: Globals,
        stdin: &str,
    ) -> (Self, crate::output::streams::Captured, crate::output::streams::Captured) {
        let (out, answers, notes) = Streams::captured();
        let stdin: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(stdin.as_bytes().to_vec()));
        let mut session = Self::new(globals, out, stdin);
        session.access = Some(access);
        (session, answers, notes)
    }
}
