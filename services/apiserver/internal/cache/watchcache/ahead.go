package watchcache

import (
	"runtime"
	"sync"
	"sync/atomic"

	"binnacle/services/apiserver/internal/storage"
)

// crowd is how many values one worker goroutine decodes at a time.
const crowd = 64

// made is an entry that was decoded in advance, with the store that its key belonged to at that
// time.
type made struct {
	of    *Store
	entry *Entry
}

// ahead decodes the entries of n values in parallel. Decoding is most of the work of applying them.
// For few values it returns nil, and the caller decodes them in order. Values that value does not
// want are left out. ahead changes nothing in the cache.
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

// entryAhead returns the i-th entry of ahead if it was decoded for store s, and decodes kv
// otherwise.
func (c *Cache) entryAhead(ahead []made, i int, s *Store, kv storage.KeyValue) *Entry {
	if i < len(ahead) && ahead[i].of == s && ahead[i].entry != nil {
		return c.named(s, ahead[i].entry)
	}
	return c.entry(s, kv)
}
