//go:build !race

package objects

// overwriteReleased means that PooledValue.Release overwrites the released memory, so that tests find
// references that remain. It is true only with the race detector.
const overwriteReleased = false
