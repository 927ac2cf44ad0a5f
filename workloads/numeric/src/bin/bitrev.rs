//! `bitrev BITS TIMES`: puts 2^BITS numbers of eight bytes into bit-reversed order and back, as a fast Fourier transform does,
//! TIMES times: one of the programs that protection against thrashing was first tried with (Jiang and Zhang, 2001). Half of
//! its accesses are sequential, and half are as far apart as they can be.

use std::process::ExitCode;

fn permute(numbers: &mut [u64], bits: u32) {
    for at in 0..numbers.len() {
        let other = at.reverse_bits() >> (usize::BITS - bits);
        if at < other {
            numbers.swap(at, other);
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<u32> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [bits @ 1..=40, times] = words[..] else {
        eprintln!("bitrev BITS TIMES: permutes 2^BITS numbers, TIMES times forth and back");
        return ExitCode::from(2);
    };
    let mut numbers: Vec<u64> = (0..1 << bits).collect();
    for _ in 0..2 * times {
        permute(&mut numbers, bits);
    }
    if !numbers.iter().copied().eq(0..1 << bits) {
        eprintln!("bitrev: the numbers are not in order again");
        return ExitCode::FAILURE;
    }
    println!("permuted 2^{bits} numbers {} times", 2 * times);
    ExitCode::SUCCESS
}
