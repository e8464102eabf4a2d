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

// formatShort returns a Status as "code reason message" with a truncated message.
func formatShort(err error) string {
	if err == nil {
		return "none"
	}
	st := FromError(err)
	return fmt.Sprintf("%d %s %.60s", st.Code, st.Reason, st.Message)
}

var pods = schema.GroupResource{Group: "g", Resource: "pods"}

// TestStoreErrorsAreTranslated checks the API errors for errors of the store.
func TestStoreErrorsAreTranslated(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"none":    {want: "none"},
		"missing": {err: fmt.Errorf("get: %w", storage.ErrNotFound), want: `404 NotFound pods.g "p" not found`},
		"exists":  {err: &storage.ExistsError{Key: "k"}, want: `409 AlreadyExists pods.g "p" already exists`},
		"another version": {
			err:  &storage.ConflictError{},
			want: `409 Conflict Operation cannot be fulfilled on pods.g "p": the object has `,
		},
		"failed precondition": {err: &storage.PreconditionError{},
			want: `409 Conflict Operation cannot be fulfilled on pods.g "p": the object has `},
		"compacted": {err: &storage.CompactedError{}, want: "410 Expired The resourceVersion for the provided list is too old."},
		"not encrypted": {
			err:  &storage.SealError{Err: errors.New("no key")},
			want: "500 InternalError Internal error occurred: no key",
		},
		"too many waiting": {err: &storage.SealError{Err: ManyWait()},
			want: "429 TooManyRequests Too many requests wait already, please try again later"},
		"too large": {err: storage.ErrTooLarge,
			want: "413 RequestEntityTooLarge Request entity too large: etcdserver: request is too large"},
		"deadline exceeded": {
			err:  context.DeadlineExceeded,
			want: "504 Timeout Timeout: request did not complete within the allowed duratio",
		},
		"client disconnected": {err: context.Canceled, want: "499  the client closed the request"},
		"unavailable": {
			err:  fmt.Errorf("put: %w", storage.ErrUnavailable),
			want: "500 InternalError put: storage is unavailable",
		},
		"another": {err: errors.New("odd"), want: "500  odd"},
	} {
		if got := formatShort(Ref{Resource: pods, Name: "p"}.Translate(test.err)); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	full := Ref{Resource: pods}.Translate(fmt.Errorf("put: %w", storage.ErrFull))
	if got := formatShort(full); !errors.Is(full, storage.ErrFull) || got != "500 InternalError put: storage is unavailable" {
		t.Errorf("full store: got %s, want the error of an unavailable store that wraps ErrFull", got)
	}
	if got := formatShort(NotAcceptable([]string{"a/b", "c/d"})); !strings.HasSuffix(got, "accepted: a/b, c/d") {
		t.Errorf("NotAcceptable(a/b, c/d): got %s, want both media types", got)
	}
	if st := FromError(&apierrors.StatusError{}); st.Status != metav1.StatusFailure || st.Code != 500 {
		t.Errorf("empty Status: got %+v, want Failure with code 500", st)
	}
	other := metav1.Status{Status: "Odd", Code: 299}
	if st := FromError(&apierrors.StatusError{ErrStatus: other}); st.Status != "Odd" || st.Code != 299 {
		t.Errorf("Status of another server: got %+v, want it unchanged", st)
	}
}

// TestUnreadableErrorsNameKeysIfAllowed checks that keys are reported only to users who may delete unreadable
// objects, and that rejected decryptions are not reported as corruption.
func TestUnreadableErrorsNameKeysIfAllowed(t *testing.T) {
	closed := &storage.CorruptObjectError{Key: "/root/pods/a", Revision: 7, Err: errors.New("no key")}
	odd := &storage.CorruptObjectError{Key: "/root/pods/b", Revision: 7, Undecodable: true, Err: errors.New("no object")}
	late := &storage.CorruptObjectError{Key: "/root/pods/c", Err: fmt.Errorf("open: %w", ManyWait())}
	const wait = "429 TooManyRequests Too many requests wait already, please try again later"
	named := CorruptObjects{Named: true, Root: "/root"}
	plain := CorruptObjects{Root: "/root"}
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{name: "named object", err: named.OfObject(closed),
			want: "500 InternalError Internal error occurred: StorageError: corrupt object, Code:"},
		{name: "object", err: plain.OfObject(closed), want: "500 InternalError Internal error occurred: no key"},
		{name: "undecodable object", err: plain.OfObject(odd), want: "500  no object"},
		{name: "rejected object", err: named.OfObject(late), want: wait},
		{
			name: "named write",
			err:  named.OfWrite(closed),
			want: "500 InternalError Internal error occurred: data from the storage is not transf",
		},
		{name: "named undecodable write", err: named.OfWrite(odd), want: "500  object not decodable revision=7: no object"},
		{name: "write", err: plain.OfWrite(closed), want: "500 InternalError Internal error occurred: no key"},
		{name: "rejected write", err: named.OfWrite(late), want: wait},
		{name: "list", err: plain.OfList(pods, []*storage.CorruptObjectError{closed, odd}),
			want: `500 InternalError Internal error occurred: unable to transform key "/root/pods`},
		{name: "undecodable list", err: plain.OfList(pods, []*storage.CorruptObjectError{odd}), want: "500  no object"},
		{name: "rejected list", err: named.OfList(pods, []*storage.CorruptObjectError{closed, late}), want: wait},
	} {
		if got := formatShort(test.err); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
	if message := FromError(named.OfObject(closed)).Message; !strings.Contains(message, "Key: /pods/a,") {
		t.Errorf("got message %q, want the key /pods/a", message)
	}
	many := make([]*storage.CorruptObjectError, 200)
	for i := range many {
		many[i] = closed
	}
	st := FromError(named.OfList(pods, many))
	if causes := st.Details.Causes; st.Reason != metav1.StatusReasonStoreReadError || len(causes) != 101 ||
		causes[0].Field != closed.Key || causes[100].Type != metav1.CauseTypeTooMany {
		t.Errorf("list of 200 unreadable objects: got %s, %d causes, want StorageReadError, 101 causes", st.Reason, len(causes))
	}
	for found, want := range map[int]bool{1: false, 100: false, 101: true} {
		if got := named.CanStop(found); got != want || !plain.CanStop(found) {
			t.Errorf("Enough(%d): got %t, want %t; without names: got %t, want true", found, got, want, plain.CanStop(found))
		}
	}
}

// TestForeignStatusIsBounded checks that all texts of another server's Status are truncated.
func TestForeignStatusIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	foreign := &metav1.Status{
		Status:   long,
		Code:     418,
		Message:  long,
		Reason:   metav1.StatusReason(long),
		ListMeta: metav1.ListMeta{SelfLink: long, ResourceVersion: long, Continue: long},
		Details: &metav1.StatusDetails{
			Name:              long,
			Group:             long,
			Kind:              long,
			UID:               "u",
			RetryAfterSeconds: 3,
			Causes:            []metav1.StatusCause{{Field: long, Message: long}},
		},
	}
	got := Shortened(foreign)
	if n := got.Size(); n > MaxMessage+10*(maxCause+100) {
		t.Errorf("Status with texts of 1 MiB: got %d bytes, want at most %d", n, MaxMessage+10*(maxCause+100))
	}
	if d := got.Details; got.Code != 418 || d == nil || d.UID != "u" || d.RetryAfterSeconds != 3 || len(d.Causes) != 1 {
		t.Errorf("short fields: got code %d, details %+v, want code 418, uid u, 3 s, one cause", got.Code, d)
	}
	if got := Shortened(&metav1.Status{Message: "m"}); got.Details != nil || got.Message != "m" {
		t.Errorf("short Status: got %+v, want it unchanged", got)
	}
}
