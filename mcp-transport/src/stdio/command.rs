//! What a child is started with: its environment, and which program its command means.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use crate::{
    config::StdioConfig,
    error::{Error, ErrorKind},
};

/// The variables of ours that every child gets, in the manner of the official SDKs: what programs need to
/// run at all, and nothing that may be a secret.
const INHERITED: [&str; 12] = [
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TEMP", "TERM", "TMP", "TMPDIR", "TZ",
    "USER",
];
const INHERITED_PREFIX: &str = "LC_";

/// Where programs are looked for without a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// All that the child needs, made before the fork.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) program: CString,
    pub(super) args: Vec<CString>,
    pub(super) env: Vec<CString>,
    pub(super) cwd: Option<CString>,
}

/// Works out what to start. `host_env` is the environment of this process.
///
/// Looks at the file system, so that what is missing is told by its name; a program that goes between here and
/// the start still shows there.
pub(super) fn resolve(
    config: &StdioConfig,
    host_env: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Command, Error> {
    if let Some(cwd) = &config.cwd {
        check_directory(cwd)?;
    }
    let env = environment(config, host_env);
    let path = env
        .get(OsStr::new("PATH"))
        .map_or(OsStr::new(DEFAULT_PATH), OsString::as_os_str);
    let program = find_program(&config.command, path, config.cwd.as_deref())?;
    let env = env.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        c_string(name)
    });
    let args = std::iter::once(&config.command).chain(&config.args);
    Ok(Command {
        program: c_string(program)?,
        args: args.map(c_string).collect::<Result<_, _>>()?,
        env: env.collect::<Result<_, _>>()?,
        cwd: config.cwd.as_ref().map(c_string).transpose()?,
    })
}

fn c_string(text: impl AsRef<OsStr>) -> Result<CString, Error> {
    CString::new(text.as_ref().as_bytes()).map_err(|_| {
        let message =
            "the command, an argument, a variable or the directory contains a NUL character";
        Error::new(ErrorKind::Config, message)
    })
}

fn environment(
    config: &StdioConfig,
    host_env: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let inherited = host_env.filter(|(name, value)| {
        let known = name
            .to_str()
            .is_some_and(|name| INHERITED.contains(&name) || name.starts_with(INHERITED_PREFIX));
        // A shell function in disguise, as the official SDKs guard against too.
        known && !value.as_bytes().starts_with(b"()")
    });
    let own = config
        .env
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    inherited.chain(own).collect()
}

fn check_directory(cwd: &Path) -> Result<(), Error> {
    let problem = match std::fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => return Ok(()),
        Ok(_) => "is not a directory".to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(e) => format!("cannot be used: {e}"),
    };
    Err(Error::new(
        ErrorKind::Config,
        format!("the working directory {} {problem}", cwd.display()),
    ))
}

/// Finds the program as the child would: in its `PATH`, and from its directory.
fn find_program(command: &str, path: &OsStr, cwd: Option<&Path>) -> Result<PathBuf, Error> {
    let from_cwd = |candidate: &Path| cwd.map_or(candidate.to_owned(), |cwd| cwd.join(candidate));
    if command.contains('/') {
        let candidate = Path::new(command);
        return match look(&from_cwd(candidate)) {
            Found::Program => Ok(candidate.to_owned()),
            Found::Nothing => Err(missing(command, "does not exist")),
            Found::Other(problem) => Err(missing(command, problem)),
        };
    }
    let mut unusable = None;
    for directory in path.as_bytes().split(|b| *b == b':') {
        // An empty part means the current directory, as for every shell.
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        let candidate = Path::new(OsStr::from_bytes(directory)).join(command);
        match look(&from_cwd(&candidate)) {
            Found::Program => return Ok(candidate),
            Found::Other(problem) => {
                unusable.get_or_insert((candidate, problem));
            }
            Found::Nothing => {}
        }
    }
    Err(match unusable {
        Some((candidate, problem)) => missing(&candidate.to_string_lossy(), problem),
        None => missing(
            command,
            "was not found in the PATH that the server gets; give its full path, or set PATH in env",
        ),
    })
}

fn missing(command: &str, problem: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("the command {command:?} {problem}"),
    )
}

enum Found {
    Program,
    Nothing,
    Other(&'static str),
}

fn look(candidate: &Path) -> Found {
    let metadata = match std::fs::metadata(candidate) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            return Found::Other("cannot be reached: permission denied");
        }
        Err(_) => return Found::Nothing,
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        Found::Other("is a directory")
    } else if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket()
    {
        Found::Other("is not a program")
    } else if metadata.mode() & 0o111 == 0 || !super::sys::may_execute(candidate) {
        Found::Other("is not executable")
    } else {
        Found::Program
    }
}

/// What an error of the system at the start itself means. `program` is what was to be started.
pub(super) fn exec_error(program: &CString, error: &std::io::Error) -> Error {
    let program = PathBuf::from(OsString::from_vec(program.as_bytes().to_vec()));
    let program = program.display();
    let config = |problem: &str| {
        Error::new(
            ErrorKind::Config,
            format!("the command \"{program}\" {problem}"),
        )
    };
    match error.raw_os_error() {
        // It was there a moment ago, so that most likely what its first line names is not.
        Some(libc::ENOENT) => {
            config("cannot be started: it or the interpreter that it names does not exist")
        }
        Some(libc::EACCES | libc::EPERM) => config("is not executable"),
        Some(libc::ENOTDIR | libc::ENAMETOOLONG | libc::ELOOP) => config("is no usable path"),
        Some(libc::E2BIG) => config("cannot be started: arguments and environment are too long"),
        // The last: it is being replaced, and somebody still writes to it.
        Some(libc::ENOMEM | libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::ETXTBSY) => {
            Error::local(format_args!("\"{program}\" cannot be started now"), error)
        }
        _ => config(&format!("cannot be started: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn host(pairs: &[(&str, &str)]) -> std::vec::IntoIter<(OsString, OsString)> {
        let pairs = pairs.iter().map(|(n, v)| ((*n).into(), (*v).into()));
        pairs.collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn what_passes_by_itself_is_no_fault_of_the_configuration() {
        let said = |errno| {
            exec_error(
                &c"/bin/x".to_owned(),
                &std::io::Error::from_raw_os_error(errno),
            )
        };
        for errno in [libc::ETXTBSY, libc::EAGAIN, libc::ENOMEM] {
            assert_eq!(said(errno).kind, ErrorKind::Local, "{errno}");
        }
        for errno in [libc::ENOENT, libc::EACCES, libc::E2BIG] {
            assert_eq!(said(errno).kind, ErrorKind::Config, "{errno}");
        }
    }

    fn directory(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("mcp-command-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn file(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn with_path(command: &str, path: &Path, cwd: Option<&Path>) -> Result<Command, Error> {
        let mut config = StdioConfig::new(command);
        config
            .env
            .insert("PATH".into(), path.to_str().unwrap().into());
        config.cwd = cwd.map(Path::to_owned);
        resolve(&config, host(&[("PATH", "/nowhere")]))
    }

    #[test]
    fn the_environment_is_the_allowlist_and_what_the_configuration_says() {
        let mut config = StdioConfig::new("/bin/sh");
        config.env.insert("KEY".into(), "k".into());
        config.env.insert("LANG".into(), "C".into());
        let host = host(&[
            ("HOME", "/h"),
            ("LANG", "de"),
            ("LC_ALL", "x"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("LD_PRELOAD", "/evil.so"),
            ("SHELL", "() { :; }"),
        ]);
        let command = resolve(&config, host).unwrap();
        let env: Vec<_> = command.env.iter().map(|v| v.to_str().unwrap()).collect();
        assert_eq!(env, ["HOME=/h", "KEY=k", "LANG=C", "LC_ALL=x"]);
    }

    #[test]
    fn a_name_is_looked_up_in_the_childs_own_path() {
        let directory = directory("path");
        file(&directory.join("prog"), 0o755);
        let command = with_path("prog", &directory, None).unwrap();
        assert_eq!(
            command.program.to_str().unwrap(),
            directory.join("prog").to_str().unwrap()
        );
        assert_eq!(command.args[0].to_str().unwrap(), "prog");
        let error = with_path("prog", Path::new("/usr/bin:/bin"), None).unwrap_err();
        assert!(error.message.contains("\"prog\" was not found"), "{error}");
        assert_eq!(error.kind, ErrorKind::Config);
    }

    #[test]
    fn a_relative_command_is_meant_from_the_childs_directory() {
        let directory = directory("cwd");
        file(&directory.join("prog"), 0o755);
        assert!(with_path("./prog", Path::new("/bin"), Some(&directory)).is_ok());
        assert!(with_path("./prog", Path::new("/bin"), None).is_err());
        assert!(with_path("prog", Path::new("."), Some(&directory)).is_ok());
    }

    #[test]
    fn directory_program_and_permission_are_told_apart() {
        let directory = directory("kinds");
        file(&directory.join("data"), 0o644);
        let path = Path::new("/usr/bin:/bin");
        for (command, cwd, said) in [
            (
                "sh".to_owned(),
                Some(directory.join("none")),
                "working directory",
            ),
            (
                "sh".to_owned(),
                Some(directory.join("data")),
                "is not a directory",
            ),
            (
                directory.join("none").display().to_string(),
                None,
                "does not exist",
            ),
            (
                directory.join("data").display().to_string(),
                None,
                "is not executable",
            ),
            (directory.display().to_string(), None, "is a directory"),
            ("/dev/null".to_owned(), None, "is not a program"),
        ] {
            let error = with_path(&command, path, cwd.as_deref()).unwrap_err();
            assert!(error.message.contains(said), "{command}: {error}");
        }
        // Found, but not executable, says more than "not found".
        let error = with_path("data", &directory, None).unwrap_err();
        assert!(error.message.contains("is not executable"), "{error}");
    }
}
