// Package hostile finds out what one client can do to others: it attacks an API
// server in a process of its own, one attack after the other, while a well-behaved
// client, the bystander, goes on reading, writing and asking for health.
//
// The server must neither panic nor answer 500, the bystander must be answered all the
// time, and when all is over the server's heap must be back where it was. How long the
// bystander waited is reported beside how long it waits undisturbed: a figure of the
// machine, not asserted.
//
// What is drawn at random is drawn from a seed, which every run logs and
// BINNACLE_HOSTILE_SEED sets. The test is short; BINNACLE_HOSTILE=long makes each
// attack larger, and lasts as long as BINNACLE_HOSTILE_TIME says (10m by default), of
// which the mutated conversations have the half.
package hostile
