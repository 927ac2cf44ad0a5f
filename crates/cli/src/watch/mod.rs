//! `lowtide watch`: what one target's memory does now, without a record and without an agent.
//!
//! Problem: sources report at different times, some of them once in minutes, and a screen must show one picture. Approach:
//! [`history`] is a sink of the recorder that keeps the last hour of ticks in memory; [`figures`] calculates the figures of
//! one moment from it; [`lines`] prints them one line each, for pipes; [`board`] is what the screen shows and what keys do,
//! [`draw`] and [`chart`] draw it, [`map`] holds the snapshots of the heatmap.

pub mod board;
pub mod chart;
pub mod draw;
pub mod figures;
pub mod history;
pub mod lines;
pub mod map;
