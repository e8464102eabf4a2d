package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/storage"
)

// short is a status as "code reason message", the message cut.
func short(err error) string {
	if err == nil {
		return "none"
	}
	st := Of(err)
	return fmt.Sprintf("%d %s %.60s", st.Code, st.Reason, st.Message)
}

var pods = schema.GroupResource{Group: "g", Resource: "pods"}

// TestErrorsOfTheStore are told as clients know them.
func TestErrorsOfTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"none":            {nil, "none"},
		"not there":       {fmt.Errorf("get: %w", storage.ErrNotFound), `404 NotFound pods.g "p" not found`},
		"there":           {&storage.ExistsError{Key: "k"}, `409 AlreadyExists pods.g "p" already exists`},
		"another version": {&storage.ConflictError{}, `409 Conflict Operation cannot be fulfilled on pods.g "p": the object has `},
		"another premise": {&storage.PremiseError{}, `409 Conflict Operation cannot be fulfilled on pods.g "p": the object has `},
		"compacted":       {&storage.CompactedError{}, "410 Expired The resourceVersion for the provided list is too old."},
		"not sealed":      {&storage.SealError{Err: errors.New("no key")}, "500 InternalError Internal error occurred: no key"},
		"nobody may wait": {&storage.SealError{Err: ManyWait()}, "429 TooManyRequests Too many requests wait already, please try again later"},
		"too large":       {storage.ErrTooLarge, "413 RequestEntityTooLarge Request entity too large: etcdserver: request is too large"},
		"too late":        {context.DeadlineExceeded, "504 Timeout Timeout: request did not complete within the allowed duratio"},
		"the client left": {context.Canceled, "499  the client closed the request"},
		"unavailable":     {fmt.Errorf("put: %w", storage.ErrUnavailable), "500 InternalError put: storage is unavailable"},
		"another":         {errors.New("odd"), "500  odd"},
	} {
		if got := short(Ref{Resource: pods, Name: "p"}.Translate(c.err)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	full := Ref{Resource: pods}.Translate(fmt.Errorf("put: %w", storage.ErrFull))
	if got := short(full); !errors.Is(full, storage.ErrFull) || got != "500 InternalError put: storage is unavailable" {
		t.Errorf("a store that is full: %s", got)
	}
	if got := short(NotAcceptable([]string{"a/b", "c/d"})); !strings.HasSuffix(got, "accepted: a/b, c/d") {
		t.Errorf("media types: %s", got)
	}
	if st := Of(&apierrors.StatusError{}); st.Status != metav1.StatusFailure || st.Code != 500 {
		t.Errorf("a status that says nothing: %+v", st)
	}
	said := metav1.Status{Status: "Odd", Code: 299}
	if st := Of(&apierrors.StatusError{ErrStatus: said}); st.Status != "Odd" || st.Code != 299 {
		t.Errorf("a status that says something: %+v", st)
	}
}

// TestErrorsOfWhatCannotBeRead: whoever may not delete such objects is not told their keys, and
// what nobody was let wait for is not told as damage.
func TestErrorsOfWhatCannotBeRead(t *testing.T) {
	closed := &storage.UnreadableError{Key: "/root/pods/a", Revision: 7, Err: errors.New("no key")}
	odd := &storage.UnreadableError{Key: "/root/pods/b", Revision: 7, Undecodable: true, Err: errors.New("no object")}
	late := &storage.UnreadableError{Key: "/root/pods/c", Err: fmt.Errorf("open: %w", ManyWait())}
	const wait = "429 TooManyRequests Too many requests wait already, please try again later"
	named, plain := Damage{Named: true, Root: "/root"}, Damage{Root: "/root"}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"named object", named.OfObject(closed), "500 InternalError Internal error occurred: StorageError: corrupt object, Code:"},
		{"object", plain.OfObject(closed), "500 InternalError Internal error occurred: no key"},
		{"undecodable object", plain.OfObject(odd), "500  no object"},
		{"object that waits", named.OfObject(late), wait},
		{"named write", named.OfWrite(closed), "500 InternalError Internal error occurred: data from the storage is not transf"},
		{"named undecodable write", named.OfWrite(odd), "500  object not decodable revision=7: no object"},
		{"write", plain.OfWrite(closed), "500 InternalError Internal error occurred: no key"},
		{"write that waits", named.OfWrite(late), wait},
		{"list", plain.OfList(pods, []*storage.UnreadableError{closed, odd}), `500 InternalError Internal error occurred: unable to transform key "/root/pods`},
		{"undecodable list", plain.OfList(pods, []*storage.UnreadableError{odd}), "500  no object"},
		{"list that waits", named.OfList(pods, []*storage.UnreadableError{closed, late}), wait},
	} {
		if got := short(c.err); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if message := Of(named.OfObject(closed)).Message; !strings.Contains(message, "Key: /pods/a,") {
		t.Errorf("the key is told as %q", message)
	}
	many := make([]*storage.UnreadableError, 200)
	for i := range many {
		many[i] = closed
	}
	st := Of(named.OfList(pods, many))
	if causes := st.Details.Causes; st.Reason != metav1.StatusReasonStoreReadError || len(causes) != 101 || causes[0].Field != closed.Key || causes[100].Type != metav1.CauseTypeTooMany {
		t.Errorf("a list of many: %s, %d causes", st.Reason, len(causes))
	}
	for found, want := range map[int]bool{1: false, 100: false, 101: true} {
		if got := named.Enough(found); got != want || !plain.Enough(found) {
			t.Errorf("%d found are enough: %t, when they are not named: %t", found, got, plain.Enough(found))
		}
	}
}

// TestWhatAnotherServerSaidIsBounded in each of its texts.
func TestWhatAnotherServerSaidIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	said := &metav1.Status{
		Status: long, Code: 418, Message: long, Reason: metav1.StatusReason(long), ListMeta: metav1.ListMeta{SelfLink: long, ResourceVersion: long, Continue: long},
		Details: &metav1.StatusDetails{Name: long, Group: long, Kind: long, UID: "u", RetryAfterSeconds: 3, Causes: []metav1.StatusCause{{Field: long, Message: long}}},
	}
	got := Shortened(said)
	if n := got.Size(); n > MaxMessage+10*(maxCause+100) {
		t.Errorf("%d bytes are left", n)
	}
	if d := got.Details; got.Code != 418 || d == nil || d.UID != "u" || d.RetryAfterSeconds != 3 || len(d.Causes) != 1 {
		t.Errorf("what is short is not left: %d %+v", got.Code, d)
	}
	if got := Shortened(&metav1.Status{Message: "m"}); got.Details != nil || got.Message != "m" {
		t.Errorf("a short one is changed: %+v", got)
	}
}
