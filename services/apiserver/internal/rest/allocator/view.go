package allocator

import (
	"bytes"
	"fmt"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// View reads the objects of one kind from the watch cache.
type View[T registry.Object] struct {
	Store *watchcache.Store
	Coder *codec.KindCodec
}

// get returns an object. namespace is empty for cluster-scoped kinds.
func (v View[T]) get(namespace, name string) (obj T, found bool, err error) {
	key := v.Store.Prefix() + name
	if namespace != "" {
		key = v.Store.Prefix() + namespace + "/" + name
	}
	e, ok := v.Store.Get(key)
	if !ok {
		return obj, false, nil
	}
	obj, err = v.decode(e)
	return obj, err == nil, err
}

// exists reports whether a cluster-scoped object exists, without decoding it.
func (v View[T]) exists(name string) bool {
	_, ok := v.Store.Get(v.Store.Prefix() + name)
	return ok
}

// list returns all objects. It stops at the first one that cannot be decoded and returns the error.
func (v View[T]) list() (out []T, err error) {
	v.Store.Snapshot().Ascend(v.Store.Prefix(), "", func(entry *objects.Entry) bool {
		var obj T
		if obj, err = v.decode(entry); err != nil {
			return false
		}
		out = append(out, obj)
		return true
	})
	return out, err
}

// listContaining returns the readable objects whose stored value contains text.
func (v View[T]) listContaining(text string) (out []T) {
	v.Store.Snapshot().Ascend(v.Store.Prefix(), "", func(entry *objects.Entry) bool {
		if bytes.Contains(entry.Stored(), []byte(text)) {
			if obj, err := v.decode(entry); err == nil {
				out = append(out, obj)
			}
		}
		return true
	})
	return out
}

// eachName calls fn with the name of each object.
func (v View[T]) eachName(fn func(string)) {
	v.Store.Snapshot().Ascend(v.Store.Prefix(), "", func(entry *objects.Entry) bool {
		fn(entry.Name())
		return true
	})
}

// decode returns the object of a cache entry.
func (v View[T]) decode(entry *objects.Entry) (obj T, err error) {
	decoded, err := v.Coder.DecodeStored(entry.Stored(), entry.Revision)
	if err != nil {
		return obj, fmt.Errorf("%s: %w", entry.Key(), err)
	}
	obj, ok := decoded.(T)
	if !ok {
		return obj, fmt.Errorf("%s is a %T", entry.Key(), decoded)
	}
	return obj, nil
}
