//go:build race

package objects

// overwriteReleased means that PooledValue.Release overwrites the released memory, so that tests find
// references that remain.
const overwriteReleased = true
