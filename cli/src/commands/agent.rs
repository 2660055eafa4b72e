//! `agent`: hands over to the agent, with its own flags, settings and logs.

use crate::error::Error;
use meridian_agent::AgentCommand;
use std::process::ExitCode;

pub(super) async fn run(command: AgentCommand) -> Result<(), Error> {
    let ended = match command {
        AgentCommand::Run(args) => Box::pin(meridian_agent::run(*args)).await,
        AgentCommand::Join(args) => Box::pin(meridian_agent::join(args)).await.map(|()| ExitCode::SUCCESS),
    };
    match ended {
        Ok(code) if code == ExitCode::SUCCESS => Ok(()),
        // The agent's log says why.
        Ok(_) => Err(Error::Reported),
        Err(error) => Err(Error::Refused(meridian_agent::with_causes(error.as_ref()))),
    }
}
