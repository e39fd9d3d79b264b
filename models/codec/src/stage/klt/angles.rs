//! Rotations of one round of a Jacobi sweep, as the plain loop and its wide twins take them.

/// Elements that are exchanged within a register.
pub const STRIP: usize = 8;
/// Basis vectors of the largest group.
pub const MAX_SIDE: usize = 128;

/// What a round does to every vector: cosine times itself plus sine times the
/// one it meets.
pub struct Angles<const N: usize> {
    pub cosines: [f32; N],
    pub sines: [f32; N],
}
