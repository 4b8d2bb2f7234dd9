//! A slow disk: what makes it so is loaded into the server.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

/// How much longer a sync takes on the slow disk, in microseconds.
pub(crate) const SLOWER: u32 = 1_000;

/// Makes every `fsync` and `fdatasync` take so many microseconds longer.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
static void slower(void) {
    struct timespec pause = { 0, DELAY_MICROS * 1000L };
    nanosleep(&pause, 0);
}
int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    slower();
    return real(file);
}
int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    slower();
    return real(file);
}
"#;

/// Makes what is to be loaded before everything else.
pub(crate) fn compile(root: &Path) -> Result<PathBuf> {
    let (source, library) = (root.join("slower.c"), root.join("slower.so"));
    fs::write(&source, SHIM)?;
    let mut cc = Command::new("cc");
    cc.arg(format!("-DDELAY_MICROS={SLOWER}")).args(["-O2", "-shared", "-fPIC", "-o"]);
    run(cc.arg(&library).arg(&source).arg("-ldl")).context("a slower disk needs a C compiler (cc)")?;
    Ok(library)
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Result<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output =
        command.output().with_context(|| format!("{} does not run", command.get_program().display()))?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed: {told}", command);
    Ok(())
}
