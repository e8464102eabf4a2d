//go:build !race

package watchcache

// spoil has what was lent overwritten when it is given back, so that whoever still refers to it
// shows: with the race detector alone.
const spoil = false
