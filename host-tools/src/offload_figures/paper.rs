//! StRoM's figures, read off their vector graphics (within about 1 % of an axis), in µs unless stated
//! otherwise.

/// Figure 7, a linked list with values of 64 bytes: length, median by READ, median by the kernel.
pub const LIST: [(u32, f64, f64); 4] = [(4, 20.5, 8.4), (8, 30.7, 11.5), (16, 56.3, 15.3), (32, 101.4, 24.0)];

/// Figure 8, a lookup in a hash table: bytes of the value, two READs, the kernel.
pub const GET: [(u32, f64, f64); 7] = [
    (64, 12.15, 7.19),
    (128, 12.29, 7.35),
    (256, 12.63, 7.78),
    (512, 13.28, 8.34),
    (1024, 14.52, 9.59),
    (2048, 16.02, 11.09),
    (4096, 17.70, 12.77),
];

/// A point of figure 9.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConsistencyPoint {
    /// Bytes of the object.
    pub bytes: u32,
    /// READ without a check.
    pub read: f64,
    /// READ with a check on the client.
    pub client: f64,
    /// The kernel.
    pub kernel: f64,
}

const fn checked(bytes: u32, read: f64, client: f64, kernel: f64) -> ConsistencyPoint {
    ConsistencyPoint { bytes, read, client, kernel }
}

/// Figure 9, consistency.
pub const CONSISTENCY: [ConsistencyPoint; 7] = [
    checked(64, 6.09, 6.19, 6.29),
    checked(128, 6.23, 6.46, 6.45),
    checked(256, 6.57, 7.07, 6.80),
    checked(512, 7.22, 8.27, 7.78),
    checked(1024, 8.48, 10.49, 8.86),
    checked(2048, 9.96, 13.94, 10.54),
    checked(4096, 11.69, 19.51, 12.65),
];

/// A point of figure 10: the mean without failures, and with half of all reads colliding with a writer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FailurePoint {
    /// Bytes of the object.
    pub bytes: u32,
    /// By READ, with the check on the client.
    pub client: [f64; 2],
    /// By the kernel.
    pub kernel: [f64; 2],
}

const fn failing(bytes: u32, client: [f64; 2], kernel: [f64; 2]) -> FailurePoint {
    FailurePoint { bytes, client, kernel }
}

/// Figure 10, failures.
pub const FAILURES: [FailurePoint; 3] = [
    failing(64, [6.21, 9.21], [6.30, 6.63]),
    failing(512, [8.28, 11.89], [7.77, 8.04]),
    failing(4096, [19.53, 25.38], [12.67, 13.45]),
];

/// Figure 11, shuffle: megabytes, seconds by partitioning on the client, by the kernel, by a plain WRITE.
pub const SHUFFLE: [(u32, f64, f64, f64); 4] =
    [(128, 0.16, 0.12, 0.11), (256, 0.32, 0.23, 0.23), (512, 0.55, 0.46, 0.46), (1024, 1.13, 0.92, 0.91)];

/// Figure 13, HyperLogLog: bytes of a message, Gb/s of WRITEs with the kernel, without.
pub const COUNTING: [(u32, f64, f64); 5] =
    [(64, 5.1, 6.1), (128, 11.4, 11.8), (512, 44.5, 47.1), (1024, 63.1, 63.4), (16_384, 85.7, 84.5)];
