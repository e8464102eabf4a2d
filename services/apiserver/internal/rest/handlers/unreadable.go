package handlers

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/storage"
)

// An unreadable object does not fail reads of other objects:
//
//   - A GET of the object fails, and so does a list at a stated or the current version that
//     contains it, as in Kubernetes.
//   - A list at any version (resourceVersion=0) and a watch, with which informers start,
//     leave out an undecodable object. They leave out an object that cannot be
//     decrypted only where errors name objects, as in Kubernetes: the key may become
//     available again.

// errEnough ends a walk that has found enough objects.
var errEnough = errors.New("enough")

// readable returns the entry, or the object read again if the entry is unreadable for a passing
// reason.
func (a *API) readable(c *Call, e *watchcache.Entry, revision int64) (*watchcache.Entry, error) {
	var why *storage.UnreadableError
	if !errors.As(e.Unreadable(), &why) {
		return e, nil
	}
	if revision == 0 && a.CorruptObjects.Named {
		return nil, apierrors.NewNotFound(c.GroupResource(), c.Op.Name)
	}
	if why.Passing { // the reason may have passed
		kv, _, err := a.Store.Get(c.Context(), e.Key(), 0)
		if err == nil {
			if e = c.Store.Entry(kv); e.Unreadable() == nil {
				return e, nil
			}
		} else if errors.Is(err, storage.ErrNotFound) {
			return nil, c.ref().Translate(err)
		}
		errors.As(errors.Join(err, e.Unreadable()), &why)
	}
	return nil, a.CorruptObjects.OfObject(why)
}

// objectError converts the error of an undecodable object to its API error. It returns all other errors
// unchanged.
func (a *API) objectError(e *watchcache.Entry, err error) error {
	var undecodable *codec.UndecodableError
	if !errors.As(err, &undecodable) {
		return err
	}
	return a.CorruptObjects.OfObject(&storage.UnreadableError{Key: e.Key(), Revision: e.Revision, Undecodable: true, Err: undecodable})
}

// leftOut reports whether a list at any version and a watch leave out an object.
func (a *API) leftOut(e *watchcache.Entry) bool {
	var why *storage.UnreadableError
	return a.CorruptObjects.Named || errors.As(e.Unreadable(), &why) && why.Undecodable
}

// allReadable returns an error if a list of a snapshot's objects from a key on, up to its limit,
// contains unreadable objects that it does not leave out. It searches a limited list in parts.
func (a *API) allReadable(c *Call, o *listOptions, snap watchcache.Snapshot, from string, scan *responsewriters.ScanLimiter) error {
	sel := selectionOf(c, o)
	var corrupt []*storage.UnreadableError
	snap.Unreadable(sel, from, func(e *watchcache.Entry) bool {
		if (o.Watch || o.revision == 0) && a.leftOut(e) {
			return true
		}
		corrupt = appendCorrupt(corrupt, e)
		return len(corrupt) == 0 || !a.CorruptObjects.Enough(len(corrupt))
	})
	if o.Limit > 0 && len(corrupt) > 0 {
		last, left, end := "", o.Limit, corrupt[len(corrupt)-1].Key
		sel.Pause = scan.Pause
		snap.Select(sel, from, func(e *watchcache.Entry) bool {
			last = e.Key()
			left--
			return left > 0 && last < end // no known unreadable object follows
		})
		if err := scan.Err(); err != nil {
			return err
		}
		for n := len(corrupt); left == 0 && n > 0 && corrupt[n-1].Key > last; n-- {
			corrupt = corrupt[:n-1]
		}
	}
	if len(corrupt) == 0 {
		return nil
	}
	return a.CorruptObjects.OfList(c.GroupResource(), corrupt)
}

func appendCorrupt(corrupt []*storage.UnreadableError, e *watchcache.Entry) []*storage.UnreadableError {
	var why *storage.UnreadableError
	if errors.As(e.Unreadable(), &why) {
		corrupt = append(corrupt, why)
	}
	return corrupt
}

// errFound ends a walk that has found enough objects.
var errFound = errors.New("found")

// whichUndecodable returns the error of a list that found undecodable objects while it was encoded,
// before anything was sent. It returns all other errors unchanged.
func (a *API) whichUndecodable(c *Call, l *responsewriters.List, err error) error {
	var undecodable *codec.UndecodableError
	if !errors.As(err, &undecodable) {
		return err
	}
	var corrupt []*storage.UnreadableError
	// The walk reads the objects again.
	_ = l.Each(func(e *watchcache.Entry) error {
		_, failed := c.Coder.DecodeItem(c.Context(), codec.Item{Stored: e.Stored(), Revision: e.Revision})
		if errors.As(failed, &undecodable) {
			corrupt = append(corrupt, &storage.UnreadableError{Key: e.Key(), Revision: e.Revision, Undecodable: true, Err: undecodable})
			if a.CorruptObjects.Enough(len(corrupt)) {
				return errFound
			}
		}
		return nil
	})
	if len(corrupt) == 0 {
		return err
	}
	return a.CorruptObjects.OfList(c.GroupResource(), corrupt)
}
