//! Where the package that is being built lies.

/// The package's folder, asked of cargo when a build script runs: `env!` says where the script was compiled, and cargo
/// does not compile it anew for a checkout that was moved.
pub fn folder() -> String {
    // Cargo starts build scripts there.
    std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into())
}
