//go:build race

package watchcache

const spoil = true
