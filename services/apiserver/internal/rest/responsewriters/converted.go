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

// NeedsConversion reports whether a webhook converts the objects of the response. Metadata is
// served as stored, without the webhook.
func (e *Encoder) NeedsConversion() bool {
	d := e.res.Document
	return d != nil && d.ConversionWebhook && !e.hasOnlyMetadata()
}

// EncodableOf returns an entry to encode: its converted document if ConvertEntries has converted
// it, otherwise the stored value.
func (e *Encoder) EncodableOf(entry *objects.Entry) Encodable {
	s := FromEntry(entry)
	if doc, ok := e.docs[entry]; ok {
		s.Item = codec.Item{Stored: doc, Revision: entry.Revision, Served: true}
	}
	return s
}

// ConvertEntries converts the entries that are encoded next in one batch. It does nothing if
// NeedsConversion is false. It returns errors of the webhook and of the context. The caller calls
// ReleaseConverted when the entries are sent.
func (e *Encoder) ConvertEntries(ctx context.Context, entries []*objects.Entry) error {
	e.ReleaseConverted()
	if !e.NeedsConversion() || len(entries) == 0 {
		return nil
	}
	var err error
	e.docs, e.release, err = e.writers.Conversions.acquireDocuments(ctx, e, entries)
	return err
}

// ReleaseConverted releases the documents of ConvertEntries.
func (e *Encoder) ReleaseConverted() {
	if e.release != nil {
		e.release()
	}
	e.docs, e.release = nil, nil
}

// MatchServed reports which entries a field selector selects in the served version. It returns
// errors of the conversion and of the context.
func (e *Encoder) MatchServed(
	ctx context.Context,
	entries []*objects.Entry,
	selector fields.Selector,
) (map[*objects.Entry]bool, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	docs, release, err := e.writers.Conversions.acquireDocuments(ctx, e, entries)
	if err != nil {
		return nil, err
	}
	defer release()
	matches := make(map[*objects.Entry]bool, len(entries))
	for entry, doc := range docs {
		attributes, err := e.res.Coder.Attributes(doc)
		if err != nil {
			return nil, err
		}
		set := fields.Set{}
		for _, label := range attributes.Fields {
			set[label.Key] = label.Value
		}
		matches[entry] = selector.Matches(set)
	}
	return matches, nil
}

// convertList converts the objects of a list and sorts its rows.
func (e *Encoder) convertList(ctx context.Context, list *List) error {
	if !e.NeedsConversion() && !e.hasRowOrder() {
		return nil
	}
	// 1. Conversion and sorting need all objects.
	if list.Iterate != nil {
		if err := list.Iterate(func(entry *objects.Entry) error { list.Items = append(list.Items, entry); return nil }); err != nil {
			return err
		}
		list.Iterate = nil
	}
	// 2. Convert.
	if e.NeedsConversion() {
		if err := e.ConvertEntries(ctx, list.Items); err != nil {
			return err
		}
	}
	// 3. Sort.
	if !e.hasRowOrder() {
		return nil
	}
	return e.sortRows(ctx, list)
}

// hasRowOrder reports whether the rows of a table are in another order than its objects.
func (e *Encoder) hasRowOrder() bool {
	return e.Representation == negotiation.Table && e.res.Presentation.RowOrder != nil
}

// sortRows sorts the objects of a list in the order of the table's rows.
func (e *Encoder) sortRows(ctx context.Context, list *List) error {
	ranks := make(map[*objects.Entry]int, len(list.Items))
	for _, entry := range list.Items {
		item, borrowed := e.EncodableOf(entry).openItem()
		obj, err := e.res.Coder.DecodeItem(ctx, item)
		borrowed.Release()
		if err != nil {
			return err
		}
		ranks[entry] = e.res.Presentation.RowOrder(obj)
	}
	list.Items = slices.Clone(list.Items)
	slices.SortStableFunc(list.Items, func(a, b *objects.Entry) int { return cmp.Compare(ranks[a], ranks[b]) })
	return nil
}

// convertObject converts a single object, which need not be an entry of the cache.
func (e *Encoder) convertObject(ctx context.Context, encodable Encodable) (Encodable, error) {
	if !e.NeedsConversion() || encodable.Served {
		return encodable, nil
	}
	if encodable.Entry != nil {
		err := e.ConvertEntries(ctx, []*objects.Entry{encodable.Entry})
		return e.EncodableOf(encodable.Entry), err
	}
	defer audit.FromContext(ctx).StartTimer(audit.Transforming).Stop()
	out, err := e.res.Document.ToServed(ctx, [][]byte{encodable.Stored})
	if err != nil {
		return encodable, asTimeout(err)
	}
	encodable.Stored = out[0]
	encodable.Served = true
	return encodable, nil
}

// acquireDocuments converts entries and acquires the memory of the converted documents. The caller
// calls release when it no longer needs them. Documents that exceed the limit are dropped, and
// converted again once there is room.
func (c *Conversions) acquireDocuments(
	ctx context.Context,
	encoder *Encoder,
	entries []*objects.Entry,
) (docs map[*objects.Entry][]byte, release func(), err error) {
	defer audit.FromContext(ctx).StartTimer(audit.Transforming).Stop()
	// The size of the documents is known only after the conversion. If its memory is not free, the
	// documents are dropped during the wait, and the next round converts the entries again. It ends
	// unless the documents have grown beyond the claim.
	claimed := 0
	release = func() {}
	for {
		// 1. Convert the entries, and keep the documents if the claim covers them.
		docs, err := c.convertShared(ctx, encoder, entries)
		if err != nil {
			release()
			return nil, nil, asTimeout(err)
		}
		size := 0
		for _, doc := range docs {
			size += len(doc)
		}
		if isCovered := size < minClaimedBytes || size <= claimed; isCovered {
			return docs, release, nil
		}
		// 2. Claim their memory.
		release()
		claim := newClaim(ctx, c.converted, size, convertedShare)
		release = func() { c.converted.Release(claim) }
		claimed = size
		if c.converted.TryAcquire(claim) {
			return docs, release, nil
		}
		// 3. Wait for the memory without the documents.
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

// convertShared converts entries, or waits until other requests of the principal have converted
// them. Another request's batch may fail because of entries that this request does not need. The
// entries of this request are then converted again in a separate batch.
func (c *Conversions) convertShared(
	ctx context.Context,
	encoder *Encoder,
	entries []*objects.Entry,
) (map[*objects.Entry][]byte, error) {
	// 1. Convert the entries, each in the batch of the request that needed it first.
	docs := make(map[*objects.Entry][]byte, len(entries))
	ownBatch, conversions, joined := c.joinBatches(ctx, encoder, entries, docs)
	defer c.leaveBatches(joined)
	if err := c.awaitBatches(ctx, joined); err != nil {
		return nil, err
	}
	var failedElsewhere []*objects.Entry
	for _, entry := range entries {
		pending := conversions[entry]
		switch {
		case pending == nil: // was converted already
		case pending.err == nil:
			docs[entry] = pending.doc
		case pending.batch == ownBatch:
			return nil, pending.err
		default:
			failedElsewhere = append(failedElsewhere, entry)
		}
	}
	if len(failedElsewhere) == 0 {
		return docs, nil
	}
	// 2. Convert the entries again whose batch of another request failed.
	retry := newBatch(ctx, encoder.encodingKey(keepConverted))
	for _, e := range failedElsewhere {
		retry.addEntry(e)
	}
	c.mu.Lock()
	c.startBatch(ctx, encoder.res.Document.ToServed, retry)
	retry.waiters++
	c.mu.Unlock()
	retryBatch := map[*batch]struct{}{retry: {}}
	defer c.leaveBatches(retryBatch)
	if err := c.awaitBatches(ctx, retryBatch); err != nil {
		return nil, err
	}
	for _, e := range failedElsewhere {
		pending := retry.pending[e]
		if pending.err != nil {
			return nil, pending.err
		}
		docs[e] = pending.doc
	}
	return docs, nil
}

// joinBatches adds the documents of entries that are converted already to docs. It joins the
// running conversions of other entries, and starts the batch own for the remaining ones. The caller
// must call leaveBatches with joined.
func (c *Conversions) joinBatches(
	ctx context.Context,
	encoder *Encoder,
	entries []*objects.Entry,
	docs map[*objects.Entry][]byte,
) (own *batch, conversions map[*objects.Entry]*pendingConversion, joined map[*batch]struct{}) {
	own = newBatch(ctx, encoder.encodingKey(keepConverted))
	conversions = map[*objects.Entry]*pendingConversion{}
	joined = map[*batch]struct{}{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range entries {
		if b, ok := entry.Encoded(own.form); ok {
			docs[entry] = b
			continue
		}
		key := conversionKey{entry, own.form, own.principal}
		pending := c.running[key]
		if pending == nil {
			pending = own.addEntry(entry)
			c.running[key] = pending
		}
		conversions[entry] = pending
		joined[pending.batch] = struct{}{}
	}
	if len(own.entries) > 0 {
		c.startBatch(ctx, encoder.res.Document.ToServed, own)
	}
	for b := range joined {
		b.waiters++
	}
	return own, conversions, joined
}

// awaitBatches waits until batches are done.
func (c *Conversions) awaitBatches(ctx context.Context, batches map[*batch]struct{}) error {
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
