package represent

import "binnacle/services/apiserver/internal/watchcache"

// ahead hands objects on in groups, of which the values are asked of the machine's
// memory together: it gives several in the time of one, and what makes the answers needs
// little more than that time for each.
type ahead struct {
	visit func(*watchcache.Entry) error
	group [8]*watchcache.Entry
	n     int
	seen  byte // so that reading is not left out
}

// add takes an object, and returns what visit returned of those before it, or nil.
func (a *ahead) add(e *watchcache.Entry) error {
	a.group[a.n] = e
	if a.n++; a.n < len(a.group) {
		return nil
	}
	return a.flush()
}

// flush hands on what has gathered, until visit returns an error.
func (a *ahead) flush() error {
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
