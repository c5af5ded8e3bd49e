//! Man pages, completions and the configuration reference, generated from their one source and
//! committed; `--check` fails where the committed text is stale.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;
use clap_complete::Shell;
use ctlmgr_config::KEYS;

use crate::{dist, sh};

/// A generated file, relative to the repository.
struct Page {
    path: &'static str,
    bytes: Vec<u8>,
}

/// Writes the generated files, or says which are stale.
pub fn run(check: bool) -> Result<()> {
    for page in pages()? {
        let is_fresh = std::fs::read(page.path).is_ok_and(|bytes| bytes == page.bytes);
        if is_fresh {
            continue;
        }
        if check {
            bail!("{} is stale: run `cargo xtask man` and commit it", page.path);
        }
        std::fs::create_dir_all(Path::new(page.path).parent().context("a page has a directory")?)?;
        std::fs::write(page.path, page.bytes)?;
        println!("wrote {}", page.path);
    }
    Ok(())
}

/// Puts pages and completions where packages have them.
pub fn install(tree: &Path) -> Result<()> {
    for (from, to) in [
        ("docs/man/ctlmgr.1", "usr/share/man/man1/ctlmgr.1"),
        ("docs/man/ctlmgr.toml.5", "usr/share/man/man5/ctlmgr.toml.5"),
        ("docs/man/ctlmgrd.8", "usr/share/man/man8/ctlmgrd.8"),
    ] {
        dist::install(Path::new(from), &tree.join(to), 0o644)?;
        sh::quiet(sh::command(&["gzip", "-9", "-n"]).arg(tree.join(to)))?;
    }
    for (from, to) in [
        ("docs/completions/ctlmgr.bash", "usr/share/bash-completion/completions/ctlmgr"),
        ("docs/completions/_ctlmgr", "usr/share/zsh/vendor-completions/_ctlmgr"),
        ("docs/completions/ctlmgr.fish", "usr/share/fish/vendor_completions.d/ctlmgr.fish"),
    ] {
        dist::install(Path::new(from), &tree.join(to), 0o644)?;
    }
    Ok(())
}

fn pages() -> Result<Vec<Page>> {
    let completion = |path, shell| {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, &mut ctlmgr::Cli::command(), "ctlmgr", &mut bytes);
        Page { path, bytes }
    };
    Ok(vec![
        Page { path: "docs/man/ctlmgr.1", bytes: command_page()? },
        Page { path: "docs/man/ctlmgr.toml.5", bytes: config_page().into_bytes() },
        completion("docs/completions/ctlmgr.bash", Shell::Bash),
        completion("docs/completions/_ctlmgr", Shell::Zsh),
        completion("docs/completions/ctlmgr.fish", Shell::Fish),
    ])
}

/// ctlmgr(1): the command with all its subcommands on one page.
fn command_page() -> Result<Vec<u8>> {
    let mut command = ctlmgr::Cli::command();
    command.build();
    let man = clap_mangen::Man::new(command.clone()).section("1").date("");
    let mut page = Vec::new();
    // Not render(): its list of subcommands names pages that do not exist; they follow below.
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    page.extend(b".SH COMMANDS\n");
    describe(&command, "ctlmgr", &mut page);
    page.extend(b".SH SEE ALSO\nctlmgrd(8), ctlmgr.toml(5), systemctl(1)\n");
    Ok(page)
}

fn describe(command: &clap::Command, prefix: &str, page: &mut Vec<u8>) {
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        let name = format!("{prefix} {}", sub.get_name());
        let words: Vec<String> = sub
            .get_arguments()
            .filter(|a| !a.is_global_set() && a.get_id() != "help")
            .map(|a| a.to_string())
            .collect();
        let about = sub.get_long_about().or(sub.get_about()).map(ToString::to_string);
        let about = escape(&about.unwrap_or_default());
        page.extend(format!(".TP\n\\fB{name}\\fR {}\n{about}\n", escape(&words.join(" "))).bytes());
        describe_arguments(sub, page);
        describe(sub, &name, page);
    }
}

/// What each argument of a command means, with its default.
fn describe_arguments(command: &clap::Command, page: &mut Vec<u8>) {
    let own = command.get_arguments().filter(|a| !a.is_global_set() && a.get_id() != "help");
    let described: Vec<String> = own
        .filter_map(|argument| {
            let help = argument.get_help()?.to_string();
            let takes_value = argument.get_action().takes_values();
            let values = argument.get_default_values().iter().map(|v| v.to_string_lossy());
            let default = values.collect::<Vec<_>>().join(" ");
            let default = match takes_value && !default.is_empty() {
                true => format!(". Default: {default}."),
                false => ".".to_owned(),
            };
            let possible = argument.get_possible_values();
            let names: Vec<_> = possible.iter().map(|v| v.get_name()).collect();
            let names = match takes_value && !names.is_empty() {
                true => format!(": {}", names.join(", ")),
                false => String::new(),
            };
            let help = help.trim_end().trim_end_matches('.');
            let text = escape(&format!("{help}{names}{default}"));
            Some(format!(".TP\n{}\n{text}\n", escape(&argument.to_string())))
        })
        .collect();
    if !described.is_empty() {
        page.extend(format!(".RS\n{}.RE\n", described.concat()).bytes());
    }
}

/// ctlmgr.toml(5), from the table of keys that the parser uses.
fn config_page() -> String {
    let mut page = String::from(include_str!("../../docs/man/ctlmgr.toml.5.head"));
    let mut table = "";
    for key in KEYS {
        if key.table != table {
            table = key.table;
            let shown = if table == "rule" { "[[rule]]".to_owned() } else { format!("[{table}]") };
            page.push_str(&format!(".SH {shown}\n"));
        }
        let default = match key.default {
            "" => String::new(),
            text => format!(" Default: {}.", escape(text)),
        };
        page.push_str(&format!(
            ".TP\n\\fB{}\\fR = {}\n{}{default}\n",
            key.name,
            escape(key.kind),
            escape(key.meaning)
        ));
    }
    page.push_str(include_str!("../../docs/man/ctlmgr.toml.5.tail"));
    page
}

/// Text that roff prints as it stands.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    let lines = text
        .lines()
        .map(|l| if l.starts_with(['.', '\'']) { format!("\\&{l}") } else { l.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}
