package responsewriters

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/security/audit"
)

// Converts reports whether a webhook converts the objects of the response. Metadata is served as
// stored, without the webhook.
func (f *Form) Converts() bool {
	d := f.res.Document
	return d != nil && d.Remote && !f.partial()
}

// FromEntry returns an entry to encode, with its converted document if Prepare has converted it.
func (f *Form) Entry(e *watchcache.Entry) Encodable {
	s := FromEntry(e)
	if doc, ok := f.docs[e]; ok {
		s.Item = codec.Item{Stored: doc, Revision: e.Revision, Served: true}
	}
	return s
}

// Prepare converts the entries that are encoded next in one batch. It does nothing if Converts is
// false. Errors are those of the webhook and of the context. The caller calls Finish when they are sent.
func (f *Form) Prepare(ctx context.Context, entries []*watchcache.Entry) error {
	f.Finish()
	if !f.Converts() || len(entries) == 0 {
		return nil
	}
	var err error
	f.docs, f.release, err = f.answers.Conversions.all(ctx, f, entries)
	return err
}

// Finish releases the documents of Prepare.
func (f *Form) Finish() {
	if f.release != nil {
		f.release()
	}
	f.docs, f.release = nil, nil
}

// Matching reports which entries a field selector selects in the served version. Errors are those
// of the conversion and of the context.
func (f *Form) Matching(ctx context.Context, entries []*watchcache.Entry, sel fields.Selector) (map[*watchcache.Entry]bool, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	docs, release, err := f.answers.Conversions.all(ctx, f, entries)
	if err != nil {
		return nil, err
	}
	defer release()
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
		it, lent := f.Entry(e).open()
		obj, err := f.res.Coder.DecodeItem(ctx, it)
		lent.Release()
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
	s.Stored, s.Served = out[0], true
	return s, nil
}
