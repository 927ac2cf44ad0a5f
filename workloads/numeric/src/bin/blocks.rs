//! `blocks SIZE STEPS EVERY FILE`: solves block tridiagonal systems along the three directions of a cube of SIZE^3 cells with
//! five unknowns each, STEPS times. Every EVERY steps it appends all unknowns to FILE, like the programs that budgets were
//! first measured with (BT-IO of the NAS parallel benchmarks; Wong and Van der Wijngaart, 2003). At the end it reads FILE,
//! checks it and removes it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::process::ExitCode;

/// Unknowns of a cell.
const N: usize = 5;
type Block = [[f64; N]; N];
type Cell = [f64; N];

/// Coupling of a cell to its neighbour in a line, and of its unknowns to each other; the diagonal dominates each row.
const NEIGHBOUR: f64 = -0.4;
const WITHIN: f64 = 0.02;

fn diagonal() -> Block {
    let mut block = [[WITHIN; N]; N];
    block.iter_mut().enumerate().for_each(|(i, row)| row[i] = 2.0);
    block
}

/// Solves `block x = right` in place and returns X of `block X = NEIGHBOUR I`, by elimination without pivoting: the
/// diagonal dominates.
fn solve(mut block: Block, right: &mut Cell) -> Block {
    let mut handed: Block = [[0.0; N]; N];
    handed.iter_mut().enumerate().for_each(|(i, row)| row[i] = NEIGHBOUR);
    for step in 0..N {
        let pivot = 1.0 / block[step][step];
        block[step].iter_mut().chain(&mut handed[step]).for_each(|entry| *entry *= pivot);
        right[step] *= pivot;
        let (row, of_row, known) = (block[step], handed[step], right[step]);
        for other in (0..N).filter(|other| *other != step) {
            let factor = block[other][step];
            for column in 0..N {
                block[other][column] -= factor * row[column];
                handed[other][column] -= factor * of_row[column];
            }
            right[other] -= factor * known;
        }
    }
    handed
}

/// The block Thomas algorithm on one line of cells.
fn line(cells: &mut [Cell], handed: &mut [Block]) {
    let mut before: Option<(Block, Cell)> = None;
    for (cell, handed) in cells.iter_mut().zip(handed.iter_mut()) {
        let mut block = diagonal();
        if let Some((above, known)) = before {
            for i in 0..N {
                (0..N).for_each(|j| block[i][j] -= NEIGHBOUR * above[i][j]);
                cell[i] -= NEIGHBOUR * known[i];
            }
        }
        *handed = solve(block, cell);
        before = Some((*handed, *cell));
    }
    for at in (0..cells.len() - 1).rev() {
        let next = cells[at + 1];
        for i in 0..N {
            let sum: f64 = (0..N).map(|j| handed[at][i][j] * next[j]).sum();
            cells[at][i] -= sum;
        }
    }
}

/// One step: all lines of each direction, and a source term.
fn step(cube: &mut [Cell], size: usize) {
    let (mut cells, mut handed) = (vec![[0.0; N]; size], vec![[[0.0; N]; N]; size]);
    for stride in [1, size, size * size] {
        for first in (0..cube.len()).filter(|at| (at / stride).is_multiple_of(size)) {
            (0..size).for_each(|at| cells[at] = cube[first + at * stride]);
            line(&mut cells, &mut handed);
            (0..size).for_each(|at| cube[first + at * stride] = cells[at]);
        }
    }
    cube.iter_mut().flatten().for_each(|value| *value = 1.9 * *value + 0.5);
}

fn run(size: usize, steps: usize, every: usize, path: &str) -> io::Result<bool> {
    let mut cube: Vec<Cell> = (0..97).cycle().take(size.pow(3)).map(|n| [1.0 + f64::from(n) / 97.0; N]).collect();
    let (mut file, mut written, mut sum) = (BufWriter::new(File::create(path)?), 0_usize, 0_u64);
    for done in 1..=steps {
        step(&mut cube, size);
        if done.is_multiple_of(every) {
            for value in cube.iter().flatten() {
                sum = sum.wrapping_add(value.to_bits());
                file.write_all(&value.to_le_bytes())?;
            }
            written += cube.len() * N;
        }
    }
    file.flush()?;
    let (mut read, mut file, mut bytes) = (0_u64, BufReader::new(File::open(path)?), [0; 8]);
    for _ in 0..written {
        file.read_exact(&mut bytes)?;
        read = read.wrapping_add(f64::from_le_bytes(bytes).to_bits());
    }
    std::fs::remove_file(path)?;
    Ok(read == sum && cube.iter().flatten().all(|value| value.is_finite()))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<usize>().ok()).filter(|number| *number > 0);
    let (Some(size), Some(steps), Some(every), Some(path)) = (number(0), number(1), number(2), words.get(3)) else {
        eprintln!("blocks SIZE STEPS EVERY FILE: SIZE^3 cells; all of them to FILE every EVERY steps");
        return ExitCode::from(2);
    };
    match run(size, steps, every, path) {
        Ok(true) => {
            println!("solved {size}^3 cells {steps} times");
            return ExitCode::SUCCESS;
        }
        Ok(false) => eprintln!("blocks: FILE does not hold what was computed"),
        Err(error) => eprintln!("blocks: {path}: {error}"),
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_solved() {
        let mut cells: Vec<Cell> = (0..7).map(|at| [f64::from(at), 1.0, -1.0, 0.5, 2.0]).collect();
        let right = cells.clone();
        line(&mut cells, &mut [[[0.0; N]; N]; 7]);
        let block = diagonal();
        for at in 0..7 {
            for i in 0..N {
                let beside =
                    |other: Option<usize>| other.and_then(|other| cells.get(other)).map_or(0.0, |cell| cell[i]);
                let own: f64 = (0..N).map(|j| block[i][j] * cells[at][j]).sum();
                let sum = own + NEIGHBOUR * (beside(at.checked_sub(1)) + beside(Some(at + 1)));
                assert!((sum - right[at][i]).abs() < 1e-9, "{at} {i}");
            }
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let path = std::env::temp_dir().join(format!("lowtide-blocks-{}", std::process::id()));
        assert!(run(6, 4, 2, path.to_str().unwrap_or_default()).is_ok_and(|right| right));
        assert!(!path.exists());
    }
}
