package responsewriters

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// Converts reports whether a webhook converts the objects of the response. Metadata is served as
// stored, without the webhook.
func (f *Encoder) Converts() bool {
	d := f.res.Document
	return d != nil && d.ConversionWebhook && !f.partial()
}

// Entry returns an entry to encode, with its converted document if Prepare has converted it.
func (f *Encoder) Entry(e *objects.Entry) Encodable {
	s := FromEntry(e)
	if doc, ok := f.docs[e]; ok {
		s.Item = codec.Item{Stored: doc, Revision: e.Revision, Served: true}
	}
	return s
}

// Prepare converts the entries that are encoded next in one batch. It does nothing if Converts is
// false. Errors are those of the webhook and of the context. The caller calls Finish when they are
// sent.
func (f *Encoder) Prepare(ctx context.Context, entries []*objects.Entry) error {
	f.Finish()
	if !f.Converts() || len(entries) == 0 {
		return nil
	}
	var err error
	f.docs, f.release, err = f.writers.Conversions.documents(ctx, f, entries)
	return err
}

// Finish releases the documents of Prepare.
func (f *Encoder) Finish() {
	if f.release != nil {
		f.release()
	}
	f.docs, f.release = nil, nil
}

// Matching reports which entries a field selector selects in the served version. Errors are those
// of the conversion and of the context.
func (f *Encoder) Matching(ctx context.Context, entries []*objects.Entry, sel fields.Selector) (map[*objects.Entry]bool, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	docs, release, err := f.writers.Conversions.documents(ctx, f, entries)
	if err != nil {
		return nil, err
	}
	defer release()
	out := make(map[*objects.Entry]bool, len(entries))
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
func (f *Encoder) prepareList(ctx context.Context, l *List) error {
	if !f.Converts() && !f.ordered() {
		return nil
	}
	if l.Iterate != nil {
		if err := l.Iterate(func(e *objects.Entry) error { l.Items = append(l.Items, e); return nil }); err != nil {
			return err
		}
		l.Iterate = nil
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
func (f *Encoder) ordered() bool {
	return f.Representation == negotiation.Table && f.res.Presentation.RowOrder != nil
}

// orderRows sorts the objects of a list in the order of the table's rows.
func (f *Encoder) orderRows(ctx context.Context, l *List) error {
	ranks := make(map[*objects.Entry]int, len(l.Items))
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
	slices.SortStableFunc(l.Items, func(a, b *objects.Entry) int { return cmp.Compare(ranks[a], ranks[b]) })
	return nil
}

// prepared converts a single object, which need not be an entry of the cache.
func (f *Encoder) prepared(ctx context.Context, s Encodable) (Encodable, error) {
	if !f.Converts() || s.Served {
		return s, nil
	}
	if s.Entry != nil {
		err := f.Prepare(ctx, []*objects.Entry{s.Entry})
		return f.Entry(s.Entry), err
	}
	defer audit.FromContext(ctx).StartTimer(audit.Transforming).Stop()
	out, err := f.res.Document.ToServed(ctx, [][]byte{s.Stored})
	if err != nil {
		return s, asTimeout(err)
	}
	s.Stored = out[0]
	s.Served = true
	return s, nil
}

// documents returns the converted documents of entries. The caller calls release when it no longer
// needs them. Documents that exceed the limit are dropped, and converted again once there is room.
func (c *Conversions) documents(ctx context.Context, f *Encoder, entries []*objects.Entry) (docs map[*objects.Entry][]byte, release func(), err error) {
	defer audit.FromContext(ctx).StartTimer(audit.Transforming).Stop()
	claimed := 0
	release = func() {}
	for {
		docs, err := c.convertAll(ctx, f, entries)
		if err != nil {
			release()
			return nil, nil, asTimeout(err)
		}
		size := 0
		for _, doc := range docs {
			size += len(doc)
		}
		if size < max(minClaimed, claimed+1) {
			return docs, release, nil
		}
		release()
		claim := claimOf(ctx, c.converted, size, convertedShare)
		release = func() { c.converted.Release(claim) }
		claimed = size
		if c.converted.TryAcquire(claim) {
			return docs, release, nil
		}
		acquired := false
		err = request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
			err := c.converted.Acquire(ctx, claim)
			acquired = err == nil
			return err
		})
		if err != nil {
			if acquired { // the request did not get its seats back
				release()
			}
			return nil, nil, asTimeout(err)
		}
	}
}

// convertAll converts entries, or waits until other requests of the principal have converted them.
// A failure of another request's batch may be due to entries that this request does not need, so
// the entries of this request are converted in a batch of their own.
func (c *Conversions) convertAll(ctx context.Context, f *Encoder, entries []*objects.Entry) (map[*objects.Entry][]byte, error) {
	docs := make(map[*objects.Entry][]byte, len(entries))
	ownBatch, flights, joined := c.join(ctx, f, entries, docs)
	defer c.leave(joined)
	if err := c.wait(ctx, joined); err != nil {
		return nil, err
	}
	var failedElsewhere []*objects.Entry
	for _, e := range entries {
		fl := flights[e]
		switch {
		case fl == nil: // was converted already
		case fl.err == nil:
			docs[e] = fl.doc
		case fl.batch == ownBatch:
			return nil, fl.err
		default:
			failedElsewhere = append(failedElsewhere, e)
		}
	}
	if len(failedElsewhere) == 0 {
		return docs, nil
	}
	retry := newBatch(ctx, f.slot(keepConverted))
	for _, e := range failedElsewhere {
		retry.add(e)
	}
	c.mu.Lock()
	c.start(ctx, f.res.Document.ToServed, retry)
	retry.waiters++
	c.mu.Unlock()
	retryBatch := map[*batch]struct{}{retry: {}}
	defer c.leave(retryBatch)
	if err := c.wait(ctx, retryBatch); err != nil {
		return nil, err
	}
	for _, e := range failedElsewhere {
		fl := retry.pending[e]
		if fl.err != nil {
			return nil, fl.err
		}
		docs[e] = fl.doc
	}
	return docs, nil
}

// join adds the documents of entries that are converted already to docs. It joins the conversions
// of the others, and starts a batch of those that nothing converts. The caller leaves the joined
// batches.
func (c *Conversions) join(ctx context.Context, f *Encoder, entries []*objects.Entry, docs map[*objects.Entry][]byte) (own *batch, flights map[*objects.Entry]*pendingConversion, joined map[*batch]struct{}) {
	own = newBatch(ctx, f.slot(keepConverted))
	flights = map[*objects.Entry]*pendingConversion{}
	joined = map[*batch]struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range entries {
		if b, ok := e.Encoded(own.form); ok {
			docs[e] = b
			continue
		}
		at := conversion{e, own.form, own.principal}
		fl := c.running[at]
		if fl == nil {
			fl = own.add(e)
			c.running[at] = fl
		}
		flights[e] = fl
		joined[fl.batch] = struct{}{}
	}
	if len(own.entries) > 0 {
		c.start(ctx, f.res.Document.ToServed, own)
	}
	for b := range joined {
		b.waiters++
	}
	return own, flights, joined
}

// wait waits until batches are done.
func (c *Conversions) wait(ctx context.Context, batches map[*batch]struct{}) error {
	return request.Wait(ctx, status.ManyWait(), func(ctx context.Context) error {
		for b := range batches {
			select {
			case <-b.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}
