package responsewriters

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// Converts reports whether a webhook converts the objects of the response. Metadata is served as
// stored, without the webhook.
func (f *Form) Converts() bool {
	d := f.res.Document
	return d != nil && d.Remote && !f.partial()
}

// Entry returns an entry to encode, with its converted document if Prepare has converted it.
func (f *Form) Entry(e *watchcache.Entry) Encodable {
	s := FromEntry(e)
	if doc, ok := f.docs[e]; ok {
		s.Item = codec.Item{Stored: doc, Revision: e.Revision, Served: true}
	}
	return s
}

// Prepare converts the entries that are encoded next in one batch. It does nothing if Converts is
// false. Errors are those of the webhook and of the context.
func (f *Form) Prepare(ctx context.Context, entries []*watchcache.Entry) error {
	if !f.Converts() || len(entries) == 0 {
		return nil
	}
	defer audit.From(ctx).Track(audit.Transforming).Done()
	docs, err := f.writers.Conversions.all(ctx, f, entries)
	f.docs = docs
	return asTimeout(err)
}

// Matching reports which entries a field selector selects in the served version. Errors are those
// of the conversion and of the context.
func (f *Form) Matching(ctx context.Context, entries []*watchcache.Entry, sel fields.Selector) (map[*watchcache.Entry]bool, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	defer audit.From(ctx).Track(audit.Transforming).Done()
	docs, err := f.writers.Conversions.all(ctx, f, entries)
	if err != nil {
		return nil, asTimeout(err)
	}
	out := make(map[*watchcache.Entry]bool, len(entries))
	for e, doc := range docs {
		a, err := f.res.Coder.Attributes(doc)
		if err != nil {
			return nil, err
		}
		set := fields.Set{}
		for _, p := range a.Fields {
			set[p.Key] = p.Value
		}
		out[e] = sel.Matches(set)
	}
	return out, nil
}

// prepareList converts the objects of a list and sorts its rows.
func (f *Form) prepareList(ctx context.Context, l *List) error {
	if !f.Converts() && !f.ordered() {
		return nil
	}
	if l.Walk != nil {
		if err := l.Walk(func(e *watchcache.Entry) error { l.Items = append(l.Items, e); return nil }); err != nil {
			return err
		}
		l.Walk = nil
	}
	if f.Converts() {
		if err := f.Prepare(ctx, l.Items); err != nil {
			return err
		}
	}
	if !f.ordered() {
		return nil
	}
	return f.orderRows(ctx, l)
}

// ordered reports whether the rows of a table are in another order than its objects.
func (f *Form) ordered() bool { return f.As == negotiation.Table && f.res.Presentation.RowOrder != nil }

// orderRows sorts the objects of a list in the order of the table's rows.
func (f *Form) orderRows(ctx context.Context, l *List) error {
	ranks := make(map[*watchcache.Entry]int, len(l.Items))
	for _, e := range l.Items {
		it, borrowed := f.Entry(e).open()
		obj, err := f.res.Coder.DecodeItem(ctx, it)
		borrowed.Release()
		if err != nil {
			return err
		}
		ranks[e] = f.res.Presentation.RowOrder(obj)
	}
	l.Items = slices.Clone(l.Items)
	slices.SortStableFunc(l.Items, func(a, b *watchcache.Entry) int { return cmp.Compare(ranks[a], ranks[b]) })
	return nil
}

// prepared converts a single object, which need not be an entry of the cache.
func (f *Form) prepared(ctx context.Context, s Encodable) (Encodable, error) {
	if !f.Converts() || s.Served {
		return s, nil
	}
	if s.Entry != nil {
		err := f.Prepare(ctx, []*watchcache.Entry{s.Entry})
		return f.Entry(s.Entry), err
	}
	defer audit.From(ctx).Track(audit.Transforming).Done()
	out, err := f.res.Document.Serve(ctx, [][]byte{s.Stored})
	if err != nil {
		return s, asTimeout(err)
	}
	s.Stored = out[0]
	s.Served = true
	return s, nil
}

// all returns the converted documents of entries.
func (c *Conversions) all(ctx context.Context, f *Form, entries []*watchcache.Entry) (map[*watchcache.Entry][]byte, error) {
	form := f.slot(keepConverted)
	docs := make(map[*watchcache.Entry][]byte, len(entries))
	var mine, others []*watchcache.Entry
	flights := map[*watchcache.Entry]*flight{}
	c.mu.Lock()
	for _, e := range entries {
		if b, ok := e.Encoded(form); ok {
			docs[e] = b
			continue
		}
		at := conversion{e, form}
		if had := c.running[at]; had != nil {
			flights[e] = had
			others = append(others, e)
			continue
		}
		flights[e] = &flight{done: make(chan struct{})}
		c.running[at] = flights[e]
		mine = append(mine, e)
	}
	c.mu.Unlock()
	if len(mine) > 0 {
		// Several requests may wait for the conversion, so it continues after the request that
		// started it ends and does not use that request's seats. The time of the webhook is
		// bounded.
		go c.convert(request.Detach(ctx), f.res.Document.Serve, form, mine, flights)
	}
	waited := append(mine, others...)
	err := request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		for _, e := range waited {
			select {
			case <-flights[e].done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := flights[e].err; err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, e := range waited {
		docs[e] = flights[e].doc
	}
	return docs, nil
}

// convert converts entries and completes their flights.
func (c *Conversions) convert(
	ctx context.Context,
	serve func(context.Context, [][]byte) ([][]byte, error),
	form watchcache.Form,
	entries []*watchcache.Entry,
	flights map[*watchcache.Entry]*flight,
) {
	stored := make([][]byte, len(entries))
	for i, e := range entries {
		stored[i] = e.Stored()
	}
	out, err := recoverPanics(ctx, serve, stored)
	if err == nil && len(out) != len(entries) {
		err = fmt.Errorf("%d of %d objects were converted", len(out), len(entries))
	}
	for i, e := range entries {
		f := flights[e]
		f.err = err
		if err == nil {
			f.doc, f.err = e.Encoding(form, func(*watchcache.Entry) ([]byte, error) { return out[i], nil })
		}
	}
	c.mu.Lock()
	for _, e := range entries {
		delete(c.running, conversion{e, form})
	}
	c.mu.Unlock()
	for _, e := range entries {
		close(flights[e].done)
	}
}

// recoverPanics calls serve and returns a panic as an error. No
// request handler is there to recover it.
func recoverPanics(
	ctx context.Context,
	serve func(context.Context, [][]byte) ([][]byte, error),
	stored [][]byte,
) (out [][]byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	return serve(ctx, stored)
}
