//go:build race

package watchcache

// spoil means that lent memory is overwritten when it is returned, to expose remaining references.
const spoil = true
