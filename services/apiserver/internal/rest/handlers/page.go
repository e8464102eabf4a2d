package handlers

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// page is the result of a list: objects in key order.
type page struct {
	responsewriters.List
	revision int64
	// last is the key of the last item if more items may follow.
	last      string
	remaining *int64
}

// show writes the page.
func (p *page) show(c *Call, f *responsewriters.Form) error {
	p.Meta = metav1.ListMeta{ResourceVersion: fmt.Sprint(p.revision), RemainingItemCount: p.remaining}
	if p.last != "" {
		p.Meta.Continue = encodeContinue(p.last, c.listPrefix(), p.revision)
	}
	return f.WriteList(c.W, c.R, &p.List)
}

const (
	// heldBytes is the maximum size of objects from the store that a request holds in memory.
	heldBytes = 4 << 20
	// A read of the store requests as many objects as fill chunkBytes, estimated from the previous
	// reads.
	chunkBytes = 4 << 20
	firstChunk = 16
	mostChunk  = 500
)

// storedPage reads a page at an old version from the store.
func (a *API) storedPage(c *Call, o *listOptions, revision int64, from string) (*page, error) {
	p := &page{revision: revision}
	held := 0
	var corrupt []*storage.UnreadableError
	err := a.stored(c, o, revision, from, func(e *watchcache.Entry, left int64) error {
		if e.Unreadable() != nil {
			if corrupt = appendCorrupt(corrupt, e); a.CorruptObjects.Enough(len(corrupt)) {
				return errEnough
			}
			return nil
		}
		p.Count++
		if held += e.Size(); held <= heldBytes {
			p.Items = append(p.Items, e)
		} else {
			p.Items = nil
		}
		if int64(p.Count) != o.Limit {
			return nil
		}
		if left > 0 {
			p.last = e.Key()
			if o.selectsAll() {
				p.remaining = &left
			}
		}
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if len(corrupt) > 0 {
		return nil, a.CorruptObjects.OfList(c.GroupResource(), corrupt)
	}
	if held > heldBytes {
		n := 0
		p.Walk = func(visit func(*watchcache.Entry) error) error {
			n = 0
			err := a.stored(c, o, revision, from, func(e *watchcache.Entry, _ int64) error {
				if n++; n > p.Count {
					return errEnough
				}
				return visit(e)
			})
			if errors.Is(err, errEnough) {
				return nil
			}
			return err
		}
	}
	return p, nil
}

// stored visits the objects of an old version that a list selects. visit gets each object, even an
// unreadable one, and the number of keys after it.
func (a *API) stored(c *Call, o *listOptions, revision int64, from string, visit func(e *watchcache.Entry, left int64) error) error {
	if err := c.selects(o, c.Store.Variant()); err != nil {
		return err
	}
	sel := selectionOf(c, o)
	sel.Readable = false
	matches := sel.Matching()
	chunk := int64(firstChunk)
	for {
		back := request.Suspend(c.Context())
		res, err := a.Store.List(c.Context(), c.listPrefix(), storage.ListOptions{Revision: revision, From: from, Limit: chunk})
		back()
		if future := new(storage.FutureError); errors.As(err, &future) { // the store's revision went backwards
			return status.TooLargeVersion(revision, future.Current)
		}
		if err != nil {
			return c.ref().Translate(err)
		}
		read, wanted := 0, 0
		for i, kv := range res.Items {
			read += len(kv.Value)
			e := c.Store.Entry(kv)
			if !matches(e) {
				continue
			}
			wanted++
			if err := visit(e, res.Count-int64(i)-1); err != nil {
				c.Store.ListedFromStore(len(res.Items), wanted)
				return err
			}
		}
		c.Store.ListedFromStore(len(res.Items), wanted)
		if !res.More || len(res.Items) == 0 {
			return nil
		}
		from = res.Items[len(res.Items)-1].Key + "\x00"
		chunk = min(max(int64(len(res.Items))*chunkBytes/int64(max(read, 1)), 1), mostChunk)
	}
}
