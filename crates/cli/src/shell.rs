//! `tenure completions` and `tenure man`.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap_complete::Shell;
use clap_mangen::Man;
use serde_json::json;

use crate::args::{Global, path};
use crate::complete;
use crate::failure::Failure;
use crate::help;
use crate::output::shown;

/// Returns the completion script of a shell.
pub(crate) fn completions(shell: Shell, global: &Global) -> Result<String, Failure> {
    let script = complete::script(&shell.to_string()).unwrap_or_default();
    let script = String::from_utf8(script).context("the script is not UTF-8")?;
    let value = json!({ "shell": shell.to_string(), "script": script });
    Ok(global.show(&value, || script))
}

/// Returns the manual page; or writes one for every command into a folder.
pub(crate) fn manual(folder: Option<&Path>, global: &Global) -> Result<String, Failure> {
    if let Some(folder) = folder {
        let folder = path(folder)?;
        let name = folder.display().to_string();
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {name}"))?;
        clap_mangen::generate_to(help::command(), &folder)
            .with_context(|| format!("cannot write to {name}"))?;
        let text = || format!("the pages are in {}\n", shown(&name));
        return Ok(global.show(&json!({ "folder": name }), text));
    }
    let mut page = Vec::new();
    Man::new(help::command()).render(&mut page).context("cannot write the page")?;
    let page = String::from_utf8(page).context("the page is not UTF-8")?;
    Ok(global.show(&json!({ "page": page }), || page))
}
