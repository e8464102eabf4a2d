package objects

import (
	"context"
	"strings"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/watchcache"
)

const (
	// keptObjects is how many objects of a kind are kept decoded.
	keptObjects = 4096
	// keptBytes bounds them by what is stored of them, in bytes: of many small values, one takes
	// twenty times as much.
	keptBytes = 2 << 20
	// keptTogether is how much those of one namespace may be that are kept: larger ones would have those
	// of others go, and would be gone themselves when they are asked for again.
	keptTogether = keptBytes / 4
)

// Kept shows what is read of the objects of a namespace to those who ask again and again, as each write in
// the namespace does. It keeps what it has decoded, within bounds; what is more is decoded anew, one after
// the other, so that it takes no memory.
type Kept[T registry.Object] struct {
	objects *Objects
	kind    Kind
	decode  func(codec.Item) (registry.Object, error)

	mu    sync.Mutex
	byKey *simplelru.LRU[string, keptObject[T]]
	bytes int
}

// keptObject is as an entry has it. It does not keep alive what it was decoded from.
type keptObject[T registry.Object] struct {
	obj  T
	id   uint64 // of the entry
	size int    // of what is stored, in bytes
}

// NewKept shows what paths name of the objects of a kind (see codec.Coder.Partly).
func NewKept[T registry.Object](o *Objects, k Kind, paths ...string) (*Kept[T], error) {
	decode, err := k.Coder.Partly(paths...)
	if err != nil {
		return nil, err
	}
	out := &Kept[T]{objects: o, kind: k, decode: decode}
	out.byKey, err = simplelru.NewLRU(keptObjects, func(_ string, old keptObject[T]) { out.bytes -= old.size })
	return out, err
}

// Each shows the objects of a namespace, the oldest first, until visit fails or the request ends. They are
// shared: nobody may change them. Many of them are large work, whatever asks for it, which begins in the
// request's turn.
func (k *Kept[T]) Each(ctx context.Context, namespace string, visit func(T) error) error {
	entries, size, err := k.objects.Stored(ctx, &k.kind, namespace)
	if err != nil {
		return err
	}
	if size >= request.LargeBody && !request.Weigh(ctx, min(size, request.MaxBody)) {
		return apierrors.NewTooManyRequests("The "+k.kind.Resource.Resource+" of the namespace are large, and others are worked on", 1)
	}
	for _, e := range entries {
		if err := ctx.Err(); err != nil { // nobody waits for the answer any more
			return err
		}
		obj, err := k.get(e, size <= keptTogether)
		if err != nil {
			return err
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kept[T]) get(e *watchcache.Entry, keep bool) (T, error) {
	k.mu.Lock()
	was, ok := k.byKey.Get(e.Key())
	k.mu.Unlock()
	if ok && was.id == e.ID() {
		return was.obj, nil
	}
	obj, err := k.read(e)
	if err == nil {
		k.put(e, obj, keep)
	}
	return obj, err
}

func (k *Kept[T]) read(e *watchcache.Entry) (none T, err error) {
	if err := e.Unreadable(); err != nil {
		return none, err
	}
	l := e.Lend()
	defer l.Back()
	obj, err := k.decode(codec.Item{Stored: l.Value, Revision: e.Revision})
	if err != nil {
		return none, err
	}
	return as[T](&k.kind, e, obj)
}

// put keeps an object in place of what it was before. Those leave for it that were not asked for for longest.
func (k *Kept[T]) put(e *watchcache.Entry, obj T, keep bool) {
	keep = keep && e.ID() != 0
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byKey.Remove(e.Key())
	if !keep {
		return
	}
	size := e.Size()
	k.bytes += size
	k.byKey.Add(strings.Clone(e.Key()), keptObject[T]{obj, e.ID(), size}) // a key is part of what an entry has
	for k.bytes > keptBytes {
		k.byKey.RemoveOldest()
	}
}
