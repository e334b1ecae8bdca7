//! Tells the linker where the image lies in memory.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=layout");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("none") {
        return;
    }
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let here = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo:rustc-link-arg-bins=-T{here}/layout/{arch}.ld");
    println!("cargo:rustc-link-arg-bins=--no-pie");
}
