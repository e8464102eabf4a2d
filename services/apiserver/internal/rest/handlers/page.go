package handlers

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// page is the result of a list: objects in key order.
type page struct {
	responsewriters.List
	revision int64
	// lastKey is the key of the last item if more items may follow.
	lastKey string
	// remaining is the number of objects after the page; nil if it is not known.
	remaining *int64
}

// writeList writes the page.
func (p *page) writeList(c *Call, encoder *responsewriters.Encoder) error {
	p.Meta = metav1.ListMeta{ResourceVersion: fmt.Sprint(p.revision), RemainingItemCount: p.remaining}
	if p.lastKey != "" {
		p.Meta.Continue = encodeContinue(p.lastKey, c.listPrefix(), p.revision)
	}
	return encoder.WriteList(c.W, c.R, &p.List)
}

const (
	// maxHeldBytes is the maximum size in bytes of objects from the store that a request holds in
	// memory.
	maxHeldBytes = 4 << 20
	// The first read of the store requests firstChunkObjects. Each further read requests as many
	// objects, at most maxChunkObjects, as fill chunkBytes if they are as large as those of the
	// previous read.
	chunkBytes        = 4 << 20
	firstChunkObjects = 16
	maxChunkObjects   = 500
)

// pageOfStore reads a page at an old revision from the store.
func (a *API) pageOfStore(call *Call, o *listOptions, revision int64, from string) (*page, error) {
	p := &page{revision: revision}
	held := 0
	var corrupt []*storage.CorruptObjectError
	err := a.visitStored(call, o, revision, from, func(entry *objects.Entry, left int64) error {
		if entry.Corrupt() != nil {
			corrupt = appendCorrupt(corrupt, entry)
			if a.CorruptObjects.CanStop(len(corrupt)) {
				return errStopWalk
			}
			return nil
		}
		p.Count++
		held += entry.Size()
		if held <= maxHeldBytes {
			p.Items = append(p.Items, entry)
		} else {
			p.Items = nil
		}
		if int64(p.Count) != o.Limit {
			return nil
		}
		if left > 0 {
			p.lastKey = entry.Key()
			if o.selectsAll() {
				p.remaining = &left
			}
		}
		return errStopWalk
	})
	if err != nil && !errors.Is(err, errStopWalk) {
		return nil, err
	}
	if len(corrupt) > 0 {
		return nil, a.CorruptObjects.OfList(call.GroupResource(), corrupt)
	}
	if held > maxHeldBytes {
		n := 0
		p.Iterate = func(visit func(*objects.Entry) error) error {
			n = 0
			err := a.visitStored(call, o, revision, from, func(entry *objects.Entry, _ int64) error {
				n++
				if n > p.Count {
					return errStopWalk
				}
				return visit(entry)
			})
			if errors.Is(err, errStopWalk) {
				return nil
			}
			return err
		}
	}
	return p, nil
}

// visitStored visits the objects of an old version that a list selects. visit gets each object,
// even an unreadable one, and the number of keys after it.
func (a *API) visitStored(
	call *Call,
	o *listOptions,
	revision int64,
	from string,
	visit func(e *objects.Entry, left int64) error,
) error {
	if err := call.checkSelectable(o, call.Store.Variant()); err != nil {
		return err
	}
	sel := selectionOf(call, o)
	sel.ExcludeCorrupt = false
	matches := sel.Matching()
	chunk := int64(firstChunkObjects)
	for {
		resume := request.Suspend(call.Context())
		res, err := a.Store.List(call.Context(), call.listPrefix(), storage.ListOptions{Revision: revision, StartKey: from, Limit: chunk})
		resume()
		if future := new(storage.FutureError); errors.As(err, &future) { // the store's revision went backwards
			return status.TooLargeVersion(revision, future.Current)
		}
		if err != nil {
			return call.objectRef().Translate(err)
		}
		readBytes, selected := 0, 0
		for i, kv := range res.Items {
			readBytes += len(kv.Value)
			e := call.Store.Entry(kv)
			if !matches(e) {
				continue
			}
			selected++
			if err := visit(e, res.Count-int64(i)-1); err != nil {
				call.Store.ListedFromStore(len(res.Items), selected)
				return err
			}
		}
		call.Store.ListedFromStore(len(res.Items), selected)
		if !res.HasMore || len(res.Items) == 0 {
			return nil
		}
		from = res.Items[len(res.Items)-1].Key + "\x00"
		chunk = min(max(int64(len(res.Items))*chunkBytes/int64(max(readBytes, 1)), 1), maxChunkObjects)
	}
}

// continueToken is the content of metadata.continue, in the format of Kubernetes: the start key of
// the next page, relative to the resource's prefix, and the revision of the list.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const (
	continueVersion = "meta.k8s.io/v1"
	// currentState marks a token whose version is no longer available: the rest of the list is read
	// from the current state.
	currentState = -1
)

// encodeContinue returns the token after a page with the given last key.
func encodeContinue(lastKey, prefix string, revision int64) string {
	start := strings.TrimPrefix(lastKey, prefix)
	// The NUL gives the next possible key, because keys contain no NUL.
	b, _ := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: revision, StartKey: start + "\u0000"})
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinue decodes a token into the start key and the version.
func decodeContinue(token, prefix string) (from string, revision int64, err error) {
	bad := func(msg string) (string, int64, error) {
		return "", 0, apierrors.NewBadRequest("invalid continue token: continue key is not valid: " + msg)
	}
	b, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return bad(err.Error())
	}
	var t continueToken
	if err := json.Unmarshal(b, &t); err != nil {
		return bad(err.Error())
	}
	switch {
	case t.APIVersion != continueVersion:
		return bad("server does not recognize this encoded version " + t.APIVersion)
	case t.ResourceVersion == 0:
		return bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case t.StartKey == "":
		return bad("encoded start key empty (version meta.k8s.io/v1)")
	}
	// A key cannot leave the prefix.
	for _, part := range strings.Split(t.StartKey, "/") {
		if part == ".." || part == "." {
			return bad(t.StartKey)
		}
	}
	return prefix + strings.TrimPrefix(t.StartKey, "/"), t.ResourceVersion, nil
}
