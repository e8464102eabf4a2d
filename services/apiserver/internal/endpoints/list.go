package endpoints

import (
	"context"
	"fmt"
	"math"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/storage"
	"binnacle/services/apiserver/internal/watchcache"
)

// page is what a list answers: the objects in the order of their keys.
type page struct {
	items    []*watchcache.Entry
	revision int64
	// last is the key of the last item looked at, when more may follow.
	last      string
	remaining *int64
}

// list answers GET of a collection.
func (a *API) list(c *call) error {
	f, err := a.negotiate(c, true)
	if err != nil {
		return err
	}
	o, err := parseListOptions(c.r.URL.Query(), c.coder, false, a.WatchList)
	if err != nil {
		return err
	}
	if o.Limit <= 0 && o.Continue == "" && f.streams(c) {
		snap, ok, err := a.snapshot(c, o)
		if err != nil {
			return err
		}
		if ok {
			return f.streamList(c, snap, selectionOf(c, o))
		}
	}
	p, err := a.page(c, o)
	if err != nil {
		return err
	}
	meta := metav1.ListMeta{ResourceVersion: fmt.Sprint(p.revision), RemainingItemCount: p.remaining}
	if p.last != "" {
		meta.Continue = encodeContinue(p.last, c.listPrefix(), p.revision)
	}
	return f.writeList(c, meta, p.items)
}

// streams tells whether a list can be written while it is read: what people
// read, protobuf and compressed answers need to know more beforehand.
func (f *form) streams(c *call) bool {
	return f.Media == api.MediaJSON && !f.Pretty && (f.api.Compress == nil || !acceptsGzip(c.r))
}

// snapshot of the state that an unlimited list shows; false when the cache does
// not have it.
func (a *API) snapshot(c *call, o *listOptions) (watchcache.Snapshot, bool, error) {
	if o.ResourceVersionMatch == metav1.ResourceVersionMatchExact {
		return watchcache.Snapshot{}, false, nil
	}
	if err := a.reach(c.ctx(), o.revision); err != nil {
		return watchcache.Snapshot{}, false, err
	}
	return c.store.Snapshot(), true, nil
}

// streamList writes a list while it goes through the snapshot.
func (f *form) streamList(c *call, snap watchcache.Snapshot, sel watchcache.Selection) error {
	p := newPieces(c, f.Media)
	p.buf = f.appendListHead(p.buf, metav1.ListMeta{ResourceVersion: fmt.Sprint(snap.Revision())})
	var err error
	first := true
	snap.Select(sel, "", func(e *watchcache.Entry) bool {
		if !first {
			p.buf = append(p.buf, ',')
		}
		first = false
		p.buf, err = f.appendItem(p.buf, shownEntry(e))
		return err == nil && p.flush(false)
	})
	if err != nil {
		return p.abort(err)
	}
	if p.gone {
		return p.end()
	}
	return f.endList(p, first)
}

// endList ends a list's JSON.
func (f *form) endList(p *pieces, empty bool) error {
	if empty && f.As == negotiate.Table {
		p.buf = append(p.buf[:len(p.buf)-1], f.coder.EmptyRows()...)
		p.buf = append(p.buf, "}\n"...)
		return p.end()
	}
	p.buf = append(p.buf, codec.ListTail...)
	return p.end()
}

// listPrefix is what the keys of a list begin with. Tokens are relative to the
// resource's own prefix below the namespace, as Kubernetes has them.
func (c *call) listPrefix() string {
	if c.Namespaced && c.info.Namespace != "" {
		return c.prefix + c.info.Namespace + "/"
	}
	return c.prefix
}

// page reads the objects that a list asks for (specification: "Get and list
// resource-version semantics" and "Chunked listing").
func (a *API) page(c *call, o *listOptions) (*page, error) {
	if o.Limit < 0 {
		o.Limit = 0
	}
	if o.Continue != "" {
		return a.nextPage(c, o)
	}
	exact := o.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		o.ResourceVersionMatch == "" && o.Limit > 0 && o.revision > 0
	if exact {
		return a.exactPage(c, o, o.revision, "")
	}
	if err := a.reach(c.ctx(), o.revision); err != nil {
		return nil, err
	}
	return snapshotPage(c, o, c.store.Snapshot(), ""), nil
}

// nextPage goes on where a token says, at the version of the first page.
func (a *API) nextPage(c *call, o *listOptions) (*page, error) {
	if o.revision > 0 {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	from, revision, err := decodeContinue(o.Continue, c.listPrefix())
	if err != nil {
		return nil, err
	}
	if revision < 0 { // inconsistent by the client's wish
		if err := a.reach(c.ctx(), -1); err != nil {
			return nil, err
		}
		return snapshotPage(c, o, c.store.Snapshot(), from), nil
	}
	p, err := a.exactPage(c, o, revision, from)
	if apierrors.IsResourceExpired(err) {
		return nil, expiredToken(from, c.listPrefix())
	}
	return p, err
}

// expiredToken is the 410 for a token whose version is gone; it carries a token
// that goes on from the same place in the newest state.
func expiredToken(from, prefix string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	key := from
	if n := len(key); n > 0 && key[n-1] == 0 {
		key = key[:n-1]
	}
	err.ErrStatus.ListMeta.Continue = encodeContinue(key, prefix, inconsistent)
	return err
}

// exactPage reads at one version: from a snapshot where the cache has it, else
// from the store.
func (a *API) exactPage(c *call, o *listOptions, revision int64, from string) (*page, error) {
	ctx, cancel := context.WithTimeout(c.ctx(), cacheWait)
	defer cancel()
	if a.Cache.Revision() < revision {
		// The version may be known to the store and not here yet.
		now, err := a.Cache.MostRecent(ctx)
		if err != nil {
			return nil, errBehind(ctx, err)
		}
		if now < revision {
			return nil, c.ref().translate(&storage.FutureError{Current: now})
		}
	}
	if snap, ok := c.store.SnapshotAt(revision); ok {
		p := snapshotPage(c, o, snap, from)
		p.revision = revision
		return p, nil
	}
	return a.storedPage(c, o, revision, from)
}

// storedPage reads an old version from the store.
func (a *API) storedPage(c *call, o *listOptions, revision int64, from string) (*page, error) {
	p := &page{revision: revision}
	sel := selectionOf(c, o)
	chunk := int64(500)
	if o.Limit > 0 && o.selectsAll() {
		chunk = o.Limit
	}
	for {
		res, err := a.Store.List(c.ctx(), c.listPrefix(), storage.ListOptions{Revision: revision, From: from, Limit: chunk})
		if err != nil {
			return nil, c.ref().translate(err)
		}
		for i, kv := range res.Items {
			e, err := c.store.Entry(kv)
			if err != nil {
				return nil, err
			}
			if !sel.Matches(e) {
				continue
			}
			p.items = append(p.items, e)
			if o.Limit > 0 && int64(len(p.items)) == o.Limit {
				if left := res.Count - int64(i) - 1; left > 0 {
					p.last = kv.Key
					if o.selectsAll() {
						p.remaining = &left
					}
				}
				return p, nil
			}
		}
		if !res.More || len(res.Items) == 0 {
			return p, nil
		}
		from = res.Items[len(res.Items)-1].Key + "\x00"
	}
}

// selectionOf is what a list or watch wants of a resource.
func selectionOf(c *call, o *listOptions) watchcache.Selection {
	s := watchcache.Selection{Namespace: c.info.Namespace, Name: c.info.Name, Labels: o.label, Fields: o.field}
	if !c.Namespaced {
		s.Namespace = ""
	}
	return s
}

// selectsAll tells that no selector leaves anything out.
func (o *listOptions) selectsAll() bool { return o.label.Empty() && o.field.Empty() }

// snapshotPage takes the objects of a snapshot from a key on.
func snapshotPage(c *call, o *listOptions, snap watchcache.Snapshot, from string) *page {
	p := &page{revision: snap.Revision()}
	limit := o.Limit
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if o.selectsAll() {
		n := int64(snap.Count(c.listPrefix(), from))
		p.items = make([]*watchcache.Entry, 0, min(n, limit))
		if n > limit {
			left := n - limit
			p.remaining = &left
		}
	}
	snap.Select(selectionOf(c, o), from, func(e *watchcache.Entry) bool {
		if int64(len(p.items)) == limit {
			p.last = p.items[limit-1].Key
			return false
		}
		p.items = append(p.items, e)
		return true
	})
	return p
}

// Answers are written in pieces of about this size.
const pieceSize = 64 << 10

// writeList answers with a list. What it needs of memory does not grow with the
// list: pieces go out as they are made.
func (f *form) writeList(c *call, meta metav1.ListMeta, items []*watchcache.Entry) error {
	if f.cbor() {
		return f.writeCBORList(c, meta, items)
	}
	if f.Media == api.MediaYAML || f.Pretty && !f.proto() {
		return f.writeWholeList(c, meta, items)
	}
	if f.proto() {
		return f.writeProtoList(c, meta, items)
	}
	if f.zipped(c, items) {
		return f.writeZippedList(c, meta, items)
	}
	p := newPieces(c, f.Media)
	p.buf = f.appendListHead(p.buf, meta)
	for i, s := range items {
		if i > 0 {
			p.buf = append(p.buf, ',')
		}
		var err error
		if p.buf, err = f.appendItem(p.buf, shownEntry(s)); err != nil {
			return p.abort(err)
		}
		if !p.flush(false) {
			return p.end()
		}
	}
	return f.endList(p, len(items) == 0)
}

func (f *form) appendListHead(dst []byte, meta metav1.ListMeta) []byte {
	if f.As == negotiate.Table {
		return f.coder.AppendTableHead(dst, f.MetaVersion, meta, true)
	}
	kind, version := f.kindOfList()
	return codec.AppendListHead(dst, kind, version, meta)
}

// writeWholeList is for the forms that people read.
func (f *form) writeWholeList(c *call, meta metav1.ListMeta, items []*watchcache.Entry) error {
	b := f.appendListHead(nil, meta)
	for i, s := range items {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = f.appendItem(b, shownEntry(s)); err != nil {
			return err
		}
	}
	b, err := f.dress(append(b, "]}"...))
	if err != nil {
		return err
	}
	writeBody(c.w, c.r, 200, f.Media, b)
	return nil
}

// writeProtoList needs the size of all items first, as the envelope tells it.
func (f *form) writeProtoList(c *call, meta metav1.ListMeta, items []*watchcache.Entry) error {
	size := 0
	messages := make([][]byte, len(items))
	for i, e := range items {
		m, err := f.message(e)
		if err != nil {
			return err
		}
		messages[i] = m
		size += codec.ProtoItemSize(len(m))
	}
	kind, version := f.kindOfList()
	head, err := codec.AppendProtoListHead(nil, kind, version, meta, size)
	if err != nil {
		return err
	}
	if f.zipped(c, items) {
		return f.writeZipped(c, head, items, func(b []byte, e *watchcache.Entry) ([]byte, error) {
			m, err := f.message(e)
			return f.appendMessage(b, m), err
		}, string(codec.ProtoListTail()), false)
	}
	p := newPieces(c, f.Media)
	p.buf = append(p.buf, head...)
	for _, m := range messages {
		p.buf = f.appendMessage(p.buf, m)
		if !p.flush(false) {
			return p.end()
		}
	}
	p.buf = append(p.buf, codec.ProtoListTail()...)
	return p.end()
}

// message returns the kept protobuf message of an object or of its metadata.
func (f *form) message(e *watchcache.Entry) ([]byte, error) {
	what, encode := keepMessage, f.coder.Message
	if f.partial() {
		what, encode = keepPartialMessage, f.coder.PartialMessage
	}
	return e.Encoding(f.keep(what), func(e *watchcache.Entry) ([]byte, error) {
		return encode(codec.Item{Stored: e.Stored(), Revision: e.Revision})
	})
}

func (f *form) appendMessage(b, m []byte) []byte {
	if f.partial() {
		return codec.AppendPartialProtoItem(b, m)
	}
	return f.coder.AppendProtoItem(b, m)
}
