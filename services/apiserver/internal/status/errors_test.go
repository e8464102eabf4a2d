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
	status := FromError(err)
	return fmt.Sprintf("%d %s %.60s", status.Code, status.Reason, status.Message)
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
}

// TestNotAcceptableNamesMediaTypes checks that the error lists the supported media types.
func TestNotAcceptableNamesMediaTypes(t *testing.T) {
	if got := formatShort(NotAcceptable([]string{"a/b", "c/d"})); !strings.HasSuffix(got, "accepted: a/b, c/d") {
		t.Errorf("NotAcceptable(a/b, c/d): got %s, want both media types", got)
	}
}

// TestFromErrorCompletesEmptyStatus checks that an empty Status becomes a failure with code 500, and
// that the Status of another server is unchanged.
func TestFromErrorCompletesEmptyStatus(t *testing.T) {
	if status := FromError(&apierrors.StatusError{}); status.Status != metav1.StatusFailure || status.Code != 500 {
		t.Errorf("empty Status: got %+v, want Failure with code 500", status)
	}
	other := metav1.Status{Status: "Odd", Code: 299}
	if status := FromError(&apierrors.StatusError{ErrStatus: other}); status.Status != "Odd" || status.Code != 299 {
		t.Errorf("Status of another server: got %+v, want it unchanged", status)
	}
}

// TestCorruptObjectErrorsNameKeysIfAllowed checks that keys are reported only to users who may delete corrupt
// objects, and that rejected decryptions are not reported as corruption.
func TestCorruptObjectErrorsNameKeysIfAllowed(t *testing.T) {
	undecryptable := &storage.CorruptObjectError{Key: "/root/pods/a", Revision: 7, Err: errors.New("no key")}
	undecodable := &storage.CorruptObjectError{Key: "/root/pods/b", Revision: 7, Undecodable: true, Err: errors.New("no object")}
	rejected := &storage.CorruptObjectError{Key: "/root/pods/c", Err: fmt.Errorf("open: %w", ManyWait())}
	const wait = "429 TooManyRequests Too many requests wait already, please try again later"
	named := CorruptObjects{Named: true, Root: "/root"}
	plain := CorruptObjects{Root: "/root"}
	for _, test := range []struct {
		name string
		err  error
		want string
	}{
		{name: "named object", err: named.OfObject(undecryptable),
			want: "500 InternalError Internal error occurred: StorageError: corrupt object, Code:"},
		{name: "object", err: plain.OfObject(undecryptable), want: "500 InternalError Internal error occurred: no key"},
		{name: "undecodable object", err: plain.OfObject(undecodable), want: "500  no object"},
		{name: "rejected object", err: named.OfObject(rejected), want: wait},
		{
			name: "named write",
			err:  named.OfWrite(undecryptable),
			want: "500 InternalError Internal error occurred: data from the storage is not transf",
		},
		{name: "named undecodable write", err: named.OfWrite(undecodable), want: "500  object not decodable revision=7: no object"},
		{name: "write", err: plain.OfWrite(undecryptable), want: "500 InternalError Internal error occurred: no key"},
		{name: "rejected write", err: named.OfWrite(rejected), want: wait},
		{name: "list", err: plain.OfList(pods, []*storage.CorruptObjectError{undecryptable, undecodable}),
			want: `500 InternalError Internal error occurred: unable to transform key "/root/pods`},
		{name: "undecodable list", err: plain.OfList(pods, []*storage.CorruptObjectError{undecodable}), want: "500  no object"},
		{name: "rejected list", err: named.OfList(pods, []*storage.CorruptObjectError{undecryptable, rejected}), want: wait},
	} {
		if got := formatShort(test.err); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
	if message := FromError(named.OfObject(undecryptable)).Message; !strings.Contains(message, "Key: /pods/a,") {
		t.Errorf("got message %q, want the key /pods/a", message)
	}
}

// TestListErrorNamesAtMost100CorruptObjects checks that the error of a list names 100 corrupt objects,
// and has one more cause that states that there are others.
func TestListErrorNamesAtMost100CorruptObjects(t *testing.T) {
	corrupt := &storage.CorruptObjectError{Key: "/root/pods/a", Revision: 7, Err: errors.New("no key")}
	named := CorruptObjects{Named: true, Root: "/root"}
	many := make([]*storage.CorruptObjectError, 200)
	for i := range many {
		many[i] = corrupt
	}
	status := FromError(named.OfList(pods, many))
	if causes := status.Details.Causes; status.Reason != metav1.StatusReasonStoreReadError || len(causes) != 101 ||
		causes[0].Field != corrupt.Key || causes[100].Type != metav1.CauseTypeTooMany {
		t.Errorf("list of 200 corrupt objects: got %s, %d causes, want StorageReadError, 101 causes", status.Reason, len(causes))
	}
}

// TestCanStopAfterReportableObjects checks that a list may stop after more corrupt objects than its
// error names, or after the first one if it names none.
func TestCanStopAfterReportableObjects(t *testing.T) {
	named := CorruptObjects{Named: true, Root: "/root"}
	plain := CorruptObjects{Root: "/root"}
	for found, want := range map[int]bool{1: false, 100: false, 101: true} {
		if got := named.CanStop(found); got != want || !plain.CanStop(found) {
			t.Errorf("CanStop(%d): got %t, want %t; without names: got %t, want true", found, got, want, plain.CanStop(found))
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
	if size := got.Size(); size > MaxMessage+10*(maxCause+100) {
		t.Errorf("Status with texts of 1 MiB: got %d bytes, want at most %d", size, MaxMessage+10*(maxCause+100))
	}
	if details := got.Details; got.Code != 418 || details == nil || details.UID != "u" || details.RetryAfterSeconds != 3 || len(details.Causes) != 1 {
		t.Errorf("short fields: got code %d, details %+v, want code 418, uid u, 3 s, one cause", got.Code, details)
	}
	if got := Shortened(&metav1.Status{Message: "m"}); got.Details != nil || got.Message != "m" {
		t.Errorf("short Status: got %+v, want it unchanged", got)
	}
}
