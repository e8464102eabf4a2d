// Package containers tests the suite as deploy/compose runs it, in containers on real networks. It
// checks the contents of images and the privileges of containers. It then kills, pauses and
// disconnects containers under load and checks that acknowledged writes persist, that no event is
// lost or duplicated and that no unauthorized client gets access.
//
// Its tests are skipped with -short, and on a machine without a Docker Engine that can build and
// run images. Images are built from this checkout under a tag of this process. No
// registry is used. All resources carry the project name binnacle-e2e-PID. They are removed at the
// end, or at the next start if the process is killed.
//
// BINNACLE_CONTAINERS=more adds faults of every kind, the console and swapped parts. long adds
// every fault of every container, and an upgrade from and a rollback to an older commit.
package containers
