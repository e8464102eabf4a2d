package responsewriters

import "binnacle/services/apiserver/internal/cache/watchcache"

// each visits the objects of a list. The limiter is not held while an object is read from the
// store, because that may take long.
func (p *pieces) each(l *List, visit func(*watchcache.Entry) error) error {
	if l.Walk == nil {
		if p.slow {
			p.acquireLimiter()
		}
		if p.gone {
			return errGone
		}
		return l.Each(visit)
	}
	return l.Walk(func(e *watchcache.Entry) error {
		if p.started || p.slow {
			p.acquireLimiter()
		}
		defer p.releaseLimiter()
		if p.gone {
			return errGone
		}
		return visit(e)
	})
}
