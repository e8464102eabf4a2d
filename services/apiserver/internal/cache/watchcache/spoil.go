//go:build !race

package watchcache

// spoil means that lent memory is overwritten when it is returned, to expose remaining references.
// It is true only with the race detector.
const spoil = false
