package watchcache

import (
	"runtime"
	"sync"
	"sync/atomic"

	"binnacle/services/apiserver/internal/storage"
)

// crowd is how many values are worth the turn of another goroutine.
const crowd = 64

// made is an entry that was made before its turn, for the store that its key led to then.
type made struct {
	of    *Store
	entry *Entry
}

// ahead makes the entries of n values beside each other, which is most of the work of
// taking them up. Few are left to their turn: it returns nil. What value does not want is
// left out. Nothing of the cache is changed.
func (c *Cache) ahead(n int, value func(int) (kv storage.KeyValue, wanted bool)) []made {
	workers := min(runtime.GOMAXPROCS(0), n/crowd)
	if workers < 2 {
		return nil
	}
	out := make([]made, n)
	r := c.routes.Load()
	var begun atomic.Int64
	work := func() {
		for {
			end := int(begun.Add(crowd))
			if end-crowd >= n {
				return
			}
			for i := end - crowd; i < min(end, n); i++ {
				kv, wanted := value(i)
				if !wanted {
					continue
				}
				if s := r.find(c.cfg.Root, kv.Key); s != nil {
					out[i] = made{s, c.unnamed(s, kv)}
				}
			}
		}
	}
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
	return out
}

// entryAhead is entry for the i-th of values of which some were made ahead.
func (c *Cache) entryAhead(ahead []made, i int, s *Store, kv storage.KeyValue) *Entry {
	if i < len(ahead) && ahead[i].of == s && ahead[i].entry != nil {
		return c.named(s, ahead[i].entry)
	}
	return c.entry(s, kv)
}
