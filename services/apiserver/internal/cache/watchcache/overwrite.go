//go:build !race

package watchcache

// overwriteReleased means that Borrowed.Release overwrites the released memory, so that tests find
// references that remain. It is true only with the race detector.
const overwriteReleased = false
