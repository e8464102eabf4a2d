package lister

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/registry"
)

// Follower reports the changes of all objects of a kind since the previous Update. It decodes only
// changed objects, so it is suitable for kinds with many objects. It must be used by one goroutine
// at a time.
type Follower[T registry.Object] struct {
	Objects *Objects
	Kind    Kind
	// Put is called with each new or changed object, Drop with the name of each removed one.
	Put  func(T)
	Drop func(name string)

	begun    bool
	shown    watchcache.Version
	reported map[string]uint64 // reported versions by key; 0 for none
}

// Begun reports whether the initial state has been reported.
func (f *Follower[T]) Begun() bool { return f.begun }

// Update reports changes. An object that cannot be decoded keeps its last reported state, and the
// error includes it.
func (f *Follower[T]) Update(ctx context.Context) error {
	if !f.Objects.Cache.Ready() {
		return watchcache.ErrNotReady
	}
	if err := f.Kind.Seen(ctx); err != nil {
		return err
	}
	s := f.Kind.Store.Snapshot()
	if f.begun && f.shown == s.Version() {
		return nil
	}
	if f.reported == nil {
		f.reported = map[string]uint64{}
	}
	var changed []*watchcache.Entry
	left := len(f.reported)
	s.Ascend(f.Kind.Prefix, "", func(e *watchcache.Entry) bool {
		id, known := f.reported[e.Key()]
		if known {
			left--
		}
		if !known || id != e.ID() {
			changed = append(changed, e)
		}
		return true
	})
	if left > 0 {
		f.drop(s)
	}
	var failed []error
	for _, e := range changed {
		if err := f.put(e); err != nil {
			failed = append(failed, err)
		}
		runtime.Gosched() // short requests run before the next large object
	}
	f.shown, f.begun = s.Version(), true
	return errors.Join(failed...)
}

// drop reports removed objects.
func (f *Follower[T]) drop(s watchcache.Snapshot) {
	for key := range f.reported {
		if _, ok := s.Get(key); !ok {
			delete(f.reported, key)
			f.Drop(strings.TrimPrefix(key, f.Kind.Prefix))
		}
	}
}

func (f *Follower[T]) put(e *watchcache.Entry) error {
	obj, err := f.Kind.Coder.DecodeStored(e.Stored(), e.Revision)
	if err != nil {
		return err
	}
	t, ok := obj.(T)
	if !ok {
		return fmt.Errorf("%s %q is a %T", f.Kind.Resource, e.Name(), obj)
	}
	f.reported[e.Key()] = e.ID()
	f.Put(t)
	return nil
}
