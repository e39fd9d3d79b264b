//! A machine without an NVIDIA driver: sentences, never panics.

use trinity_hwcodec::sys::cuvid::Cuvid;
use trinity_hwcodec::sys::nvenc::Nvenc;
use trinity_hwcodec::{Error, Gpu, discover, driver_present};

#[test]
fn without_a_driver_everything_says_so() {
    if driver_present() {
        eprintln!("skipped: this machine has an NVIDIA driver");
        return;
    }
    assert!(matches!(Gpu::open(0), Err(Error::NoDriver { .. })));
    assert_eq!(Gpu::count().unwrap(), 0);
    let message = discover::inventory().unwrap_err().to_string();
    assert_eq!(message, "no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)");
}

#[test]
fn missing_libraries_are_named_with_where_they_come_from() {
    let message = Cuvid::load("libnothing.so.9").unwrap_err().to_string();
    assert!(message.contains("libnvcuvid.so.1") && message.contains("NVIDIA driver"), "{message}");
    assert!(matches!(Nvenc::load("libnothing.so.9"), Err(Error::NoLibrary { .. })));
}

#[test]
fn a_library_without_the_functions_is_an_old_driver() {
    // libc is certainly there, and certainly no video decoder.
    assert!(matches!(Cuvid::load("libc.so.6"), Err(Error::OldDriver { .. })));
    assert!(matches!(Nvenc::load("libc.so.6"), Err(Error::OldDriver { .. })));
}
