//! Tells the module what it is made of, so that a command that carries an older
//! page notices.

#[path = "../build/own.rs"]
mod own;
#[path = "../build/page.rs"]
mod page;

fn main() {
    page::state(&own::folder());
}
