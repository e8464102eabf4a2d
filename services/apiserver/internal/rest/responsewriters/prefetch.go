package responsewriters

import "binnacle/services/apiserver/internal/cache/watchcache"

// prefetcher passes objects to visit in groups and loads the values of a group from memory at once.
// The processor loads several values in the time of one, and encoding an object takes little longer
// than such a load.
type prefetcher struct {
	visit func(*watchcache.Entry) error
	group [8]*watchcache.Entry
	n     int
	seen  byte // keeps the compiler from removing the loads
}

// add adds an object to the group. It returns the error of visit for a full group, or nil.
func (a *prefetcher) add(e *watchcache.Entry) error {
	a.group[a.n] = e
	if a.n++; a.n < len(a.group) {
		return nil
	}
	return a.flush()
}

// flush passes the group to visit, until visit returns an error.
func (a *prefetcher) flush() error {
	group := a.group[:a.n]
	a.n = 0
	for _, e := range group {
		a.seen ^= e.Touch()
	}
	for _, e := range group {
		if err := a.visit(e); err != nil {
			return err
		}
	}
	return nil
}
