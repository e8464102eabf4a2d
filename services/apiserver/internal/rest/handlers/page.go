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
func (p *page) writeList(call *Call, encoder *responsewriters.Encoder) error {
	p.Meta = metav1.ListMeta{ResourceVersion: fmt.Sprint(p.revision), RemainingItemCount: p.remaining}
	if p.lastKey != "" {
		p.Meta.Continue = encodeContinue(p.lastKey, call.listPrefix(), p.revision)
	}
	return encoder.WriteList(call.W, call.R, &p.List)
}

const (
	// maxHeldBytes is the maximum size in bytes of objects from the store that a request holds in
	// memory.
	maxHeldBytes = 4 << 20
	// The first read of the store requests firstChunkObjects. Each further read requests the number
	// of objects that fills chunkBytes at the mean size of the previous read, at most
	// maxChunkObjects.
	chunkBytes        = 4 << 20
	firstChunkObjects = 16
	maxChunkObjects   = 500
)

// pageOfStore reads a page at an old revision from the store.
func (a *API) pageOfStore(call *Call, options *listOptions, revision int64, from string) (*page, error) {
	result := &page{revision: revision}
	held := 0
	var corrupt []*storage.CorruptObjectError
	err := a.visitStored(call, options, revision, from, func(entry *objects.Entry, left int64) error {
		if entry.Corrupt() != nil {
			corrupt = appendCorrupt(corrupt, entry)
			if a.CorruptObjects.CanStop(len(corrupt)) {
				return errStopWalk
			}
			return nil
		}
		result.Count++
		held += entry.Size()
		if held <= maxHeldBytes {
			result.Items = append(result.Items, entry)
		} else {
			result.Items = nil
		}
		if int64(result.Count) != options.Limit {
			return nil
		}
		if left > 0 {
			result.lastKey = entry.Key()
			if options.selectsAll() {
				result.remaining = &left
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
		visited := 0
		result.Iterate = func(visit func(*objects.Entry) error) error {
			visited = 0
			err := a.visitStored(call, options, revision, from, func(entry *objects.Entry, _ int64) error {
				visited++
				if visited > result.Count {
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
	return result, nil
}

// visitStored visits the objects of an old revision that a list selects. visit gets each object,
// even a corrupt one, and the number of keys after it.
func (a *API) visitStored(
	call *Call,
	options *listOptions,
	revision int64,
	from string,
	visit func(entry *objects.Entry, left int64) error,
) error {
	if err := call.checkSelectable(options, call.Store.Variant()); err != nil {
		return err
	}
	selection := selectionOf(call, options)
	selection.ExcludeCorrupt = false
	matches := selection.Matching()
	chunkObjects := int64(firstChunkObjects)
	for {
		resume := request.Suspend(call.Context())
		chunkResult, err := a.Store.List(call.Context(), call.listPrefix(), storage.ListOptions{Revision: revision, StartKey: from, Limit: chunkObjects})
		resume()
		if future := new(storage.FutureError); errors.As(err, &future) { // the store's revision went backwards
			return status.TooLargeVersion(revision, future.Current)
		}
		if err != nil {
			return call.objectRef().Translate(err)
		}
		readBytes, selected := 0, 0
		for i, kv := range chunkResult.Items {
			readBytes += len(kv.Value)
			entry := call.Store.Entry(kv)
			if !matches(entry) {
				continue
			}
			selected++
			if err := visit(entry, chunkResult.Count-int64(i)-1); err != nil {
				call.Store.ListedFromStore(len(chunkResult.Items), selected)
				return err
			}
		}
		call.Store.ListedFromStore(len(chunkResult.Items), selected)
		if !chunkResult.HasMore || len(chunkResult.Items) == 0 {
			return nil
		}
		from = chunkResult.Items[len(chunkResult.Items)-1].Key + "\x00"
		chunkObjects = min(max(int64(len(chunkResult.Items))*chunkBytes/int64(max(readBytes, 1)), 1), maxChunkObjects)
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
	// currentState marks a token whose revision is no longer available: the rest of the list is read
	// from the current state.
	currentState = -1
)

// encodeContinue returns the token after a page with the given last key.
func encodeContinue(lastKey, prefix string, revision int64) string {
	start := strings.TrimPrefix(lastKey, prefix)
	// The NUL gives the next possible key, because keys contain no NUL.
	encoded, _ := json.Marshal(continueToken{APIVersion: continueVersion, ResourceVersion: revision, StartKey: start + "\u0000"})
	return base64.RawURLEncoding.EncodeToString(encoded)
}

// decodeContinue decodes a token into the start key and the revision.
func decodeContinue(token, prefix string) (from string, revision int64, err error) {
	invalid := func(msg string) (string, int64, error) {
		return "", 0, apierrors.NewBadRequest("invalid continue token: continue key is not valid: " + msg)
	}
	encoded, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return invalid(err.Error())
	}
	var decoded continueToken
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return invalid(err.Error())
	}
	switch {
	case decoded.APIVersion != continueVersion:
		return invalid("server does not recognize this encoded version " + decoded.APIVersion)
	case decoded.ResourceVersion == 0:
		return invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case decoded.StartKey == "":
		return invalid("encoded start key empty (version meta.k8s.io/v1)")
	}
	// A key cannot leave the prefix.
	for _, part := range strings.Split(decoded.StartKey, "/") {
		if part == ".." || part == "." {
			return invalid(decoded.StartKey)
		}
	}
	return prefix + strings.TrimPrefix(decoded.StartKey, "/"), decoded.ResourceVersion, nil
}
