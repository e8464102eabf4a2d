package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestStatusIsBounded checks that causes and messages beyond the limits are cut, and that the
// Status states how many causes are omitted.
func TestStatusIsBounded(t *testing.T) {
	at := field.NewPath("spec")
	many := make(field.ErrorList, 300_000)
	for i := range many {
		many[i] = field.Required(at.Index(i), "")
	}
	long := make(field.ErrorList, 200)
	for i := range long {
		long[i] = field.Invalid(at.Index(i), strings.Repeat("ä", 10_000), "is wrong")
	}
	medium := make(field.ErrorList, 200)
	for i := range medium {
		medium[i] = field.Invalid(at.Index(i), strings.Repeat("x", 1000), "is wrong")
	}
	for name, test := range map[string]struct {
		err  error
		kept string // the number of the causes that the Status contains
		left string // the text about the omitted causes
	}{
		"a few": {err: Invalid(schema.GroupKind{Kind: "Pod"}, "p", many[:3]), kept: "3"},
		"many": {
			err:  Invalid(schema.GroupKind{Kind: "Pod"}, "p", many),
			kept: "1000",
			left: "299000 more errors are left out",
		},
		"long ones": {
			err:  Invalid(schema.GroupKind{Kind: "Pod"}, "p", long),
			kept: "30",
			left: "170 more errors are left out",
		},
		"many, from apimachinery": {
			err:  apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", many[:2000]),
			kept: "1000",
			left: "1000 more errors are left out",
		},
		"large, from apimachinery": {
			err:  apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", medium),
			kept: "63",
			left: "137 more errors are left out",
		},
		"a long message": {err: errors.New(strings.Repeat("x", 1<<20)), kept: "0"},
		"a long name":    {err: apierrors.NewNotFound(schema.GroupResource{}, strings.Repeat("x", 1<<20)), kept: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			status := FromError(test.err)
			if len(status.Message) > MaxMessage+100 {
				t.Errorf("got a message of %d bytes, want at most %d", len(status.Message), MaxMessage+100)
			}
			if len(status.Message) > MaxMessage && !strings.HasSuffix(status.Message, " more bytes are left out)") {
				t.Errorf("message of %d bytes: got no note of the omitted bytes, want one", len(status.Message))
			}
			var causes []metav1.StatusCause
			size := 0
			if status.Details != nil {
				causes = status.Details.Causes
				size = len(status.Details.Name)
			}
			left := ""
			if n := len(causes); n > 0 && causes[n-1].Field == "" {
				left = causes[n-1].Message
				causes = causes[:n-1]
			}
			for _, cause := range causes {
				size += len(cause.Message) + len(cause.Field)
			}
			if size > MaxMessage+maxCause+100 {
				t.Errorf("got causes of %d bytes, want at most %d", size, MaxMessage+maxCause+100)
			}
			if got := len(causes); left != test.left || strconv.Itoa(got) != test.kept {
				t.Errorf("got %d causes, %q, want %s, %q", got, left, test.kept, test.left)
			}
		})
	}
}

// TestInvalidLimitsTotalSize checks that Invalid omits causes when their texts exceed MaxMessage,
// even if they are fewer than MaxCauses.
func TestInvalidLimitsTotalSize(t *testing.T) {
	at := field.NewPath("spec")
	medium := make(field.ErrorList, 200)
	for i := range medium {
		medium[i] = field.Invalid(at.Index(i), strings.Repeat("x", 1000), "is wrong")
	}
	if err := Invalid(schema.GroupKind{Kind: "Pod"}, "p", medium); len(err.ErrStatus.Details.Causes) > 100 ||
		len(err.ErrStatus.Message) > MaxMessage+1000 {
		t.Errorf("200 errors of 1000 bytes: got %d causes and a message of %d bytes, want at most 100 and about 64 KiB",
			len(err.ErrStatus.Details.Causes), len(err.ErrStatus.Message))
	}
}

// TestSmallStatusIsUnchanged checks that FromError does not copy the details of a small Status.
func TestSmallStatusIsUnchanged(t *testing.T) {
	causes := field.ErrorList{field.Required(field.NewPath("spec"), ""), field.Required(field.NewPath("status"), "")}
	small := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", causes)
	if status := FromError(small); status.Details != small.ErrStatus.Details || len(status.Details.Causes) != 2 {
		t.Errorf("small Status: got details %+v, want them unchanged", status.Details)
	}
}

// TestInvalidShortensLongValues checks that an error for a long name, which is also a long value,
// is not larger than a few kilobytes.
func TestInvalidShortensLongValues(t *testing.T) {
	name := strings.Repeat("\n", 1<<20)
	at := field.NewPath("metadata", "name")
	err := Invalid(schema.GroupKind{Kind: "ConfigMap"}, name,
		field.ErrorList{field.Invalid(at, name, "is too long"), field.Invalid(at, name, "has newlines")})
	text, jsonErr := json.Marshal(FromError(err))
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	if len(text) > 64<<10 {
		t.Errorf("got a response of %d bytes, want at most 64 KiB", len(text))
	}
	for _, want := range []string{"(1046528 more bytes are left out)", "is too long", "has newlines"} {
		if !strings.Contains(err.ErrStatus.Message, want) {
			t.Errorf("got no %q in the message, want it", want)
		}
	}
}

// TestErrorsAreAggregated checks that the text equals that of apimachinery, with each error once
// and brackets around several.
func TestErrorsAreAggregated(t *testing.T) {
	at := field.NewPath("spec")
	first := field.Required(at.Index(0), "first")
	second := field.Invalid(at.Index(1), "x", "second")
	for name, errs := range map[string]field.ErrorList{
		"none": nil, "one": {first}, "the same twice": {first, first}, "two": {first, second}, "one of two twice": {first, second, first},
	} {
		t.Run(name, func(t *testing.T) {
			kind := schema.GroupKind{Kind: "Pod"}
			if got, want := Invalid(kind, "p", errs), apierrors.NewInvalid(kind, "p", errs); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			if got, want := Aggregated(errs), errs.ToAggregate(); (got == nil) != (want == nil) ||
				got != nil && got.Error() != want.Error() {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestAggregatedFormatsOnlyShownErrors checks that the text of many errors is bounded, and that errors
// beyond the bound are not formatted.
func TestAggregatedFormatsOnlyShownErrors(t *testing.T) {
	many := make([]error, 200_000)
	formatted := 0
	for i := range many {
		many[i] = lazyError(func() string { formatted++; return fmt.Sprint("error ", i) })
	}
	text := Aggregated(many).Error()
	if len(text) > MaxMessage+100 ||
		!strings.HasSuffix(text, fmt.Sprintf(", %d more errors are left out]", len(many)-formatted)) ||
		formatted > MaxMessage/5 {
		t.Errorf("got %d errors formatted, %d bytes that end with %q, want only as many as fit into the message",
			formatted, len(text), text[len(text)-50:])
	}
}

// lazyError is an error whose text a function returns.
type lazyError func() string

func (e lazyError) Error() string { return e() }
