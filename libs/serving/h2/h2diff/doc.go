// Package h2diff compares package h2 with the HTTP/2 server of net/http. It has tests only.
//
// Both servers run the same handlers and receive the same frames. A test compares what they send,
// frame by frame, and what their handlers see:
//
//   - Scripts: a table of exchanges, most of them a combination of a stream's state and a frame.
//   - Sequences: random frames, compared step by step. BINNACLE_H2DIFF_SEED repeats one run.
//   - Storms: many streams at a time with random windows, padding, uploads and cancellations. A
//     storm checks every byte and every window of each server.
//
// Each exchange runs in a synctest bubble. A step ends when all goroutines of the server are
// blocked, and timeouts take no real time. BINNACLE_H2DIFF=long runs many more sequences and
// storms.
//
// differences_test.go lists the accepted differences. A listed difference that no script produces
// fails the test.
package h2diff
