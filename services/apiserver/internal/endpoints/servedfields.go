package endpoints

import (
	"context"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/selection"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/represent"
	"binnacle/services/apiserver/internal/watchcache"
)

// splitFields returns the part of a field selector that the watch cache evaluates, and the part
// that needs the object in the requested version. The second is nil unless a webhook converts:
// otherwise the selectable fields of all versions are those of the stored document.
func splitFields(c *codec.Coder, sel fields.Selector) (cached, served fields.Selector) {
	if sel.Empty() || c.Decl.Document == nil || !c.Decl.Document.Remote {
		return sel, nil
	}
	var known, others []fields.Selector
	for _, r := range sel.Requirements() {
		term := fields.OneTermEqualSelector(r.Field, r.Value)
		if r.Operator == selection.NotEquals {
			term = fields.OneTermNotEqualSelector(r.Field, r.Value)
		}
		if r.Field == watchcache.FieldName || r.Field == watchcache.FieldNamespace {
			known = append(known, term)
		} else {
			others = append(others, term)
		}
	}
	if len(others) == 0 {
		return sel, nil
	}
	return fields.AndSelectors(known...), fields.AndSelectors(others...)
}

// minConverted is how many objects a limited list converts at a time, at least, to select from them.
const minConverted = 500

// selectedPage is page with the fields of the requested version applied. It reads candidates
// until the page is full.
func (a *API) selectedPage(c *Call, f *represent.Form, o *listOptions) (*page, error) {
	if o.served == nil {
		return a.page(c, o)
	}
	candidates := *o
	if o.Limit > 0 {
		candidates.Limit = max(o.Limit, minConverted)
	}
	p, err := a.page(c, &candidates)
	if err != nil {
		return nil, err
	}
	out := &page{revision: p.revision}
	for {
		var all []*watchcache.Entry
		if err := p.Each(func(e *watchcache.Entry) error { all = append(all, e); return nil }); err != nil {
			return nil, err
		}
		matches, err := f.Matching(c.Context(), all, o.served)
		if err != nil {
			return nil, err
		}
		for _, e := range all {
			if !matches[e] {
				continue
			}
			if o.Limit > 0 && int64(len(out.Items)) == o.Limit {
				out.last = out.Items[o.Limit-1].Key()
				return out, nil
			}
			out.Items = append(out.Items, e)
		}
		if p.last == "" {
			return out, nil
		}
		if p, err = a.exactPage(c, &candidates, out.revision, p.last+"\x00"); err != nil {
			return nil, err
		}
	}
}

// selected applies the fields of the requested version to events. An object that starts to match
// is Added, one that stops to match is Deleted.
func (s *stream) selected(ctx context.Context, events []watchcache.Event) ([]watchcache.Event, error) {
	var entries []*watchcache.Entry
	for _, e := range events {
		if e.Type != watchcache.Bookmark {
			entries = append(entries, e.Entry)
		}
		if e.Before != nil {
			entries = append(entries, e.Before)
		}
	}
	matches, err := s.form.Matching(ctx, entries, s.fields)
	if err != nil {
		return nil, err
	}
	out := events[:0]
	for _, e := range events {
		is := e.Type == watchcache.Bookmark || matches[e.Entry]
		if e.Type == watchcache.Modified {
			switch was := matches[e.Before]; {
			case is && !was:
				e.Type = watchcache.Added
			case was && !is:
				e.Type, e.Entry, is = watchcache.Deleted, e.Before, true
			}
		}
		if is {
			out = append(out, e)
		}
	}
	return out, nil
}
