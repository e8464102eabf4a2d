// Package containers runs the suite as deploy/compose has it, in containers on real
// networks, and finds out whether it keeps its promises there: images hold what they
// must and nothing else, containers may do nothing that they need not, and what was
// acknowledged is kept, no event lost or doubled, and nobody let in, while containers
// are killed, paused and cut off from each other under load.
//
// It skips where no Docker Engine answers or none that makes and runs images here, and
// with -short. Images are made of the code as it is, under a tag of this process; no
// registry is asked. Everything carries the name of a project, binnacle-e2e-PID, and is
// removed at the end, and at the next start if this one is killed.
//
// BINNACLE_CONTAINERS=more adds faults of every kind, the console and parts that are
// swapped; long adds every fault of every container, and an upgrade from and a way back
// to an older commit.
package containers
