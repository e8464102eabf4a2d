package openapi

import (
	"testing"
	"time"
)

// TestClientsShareAPlainDocument checks that clients share one uncompressed copy, which is dropped with
// the last client. A copy for each slow client would take megabytes.
func TestClientsShareAPlainDocument(t *testing.T) {
	content, err := (&packer{}).compress([]byte("document"), "etag", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	first, releaseFirst, err := content.uncompressed()
	if err != nil || string(first) != "document" {
		t.Fatalf("uncompressed: got %q and error %v, want \"document\" and no error", first, err)
	}
	second, releaseSecond, err := content.uncompressed()
	if err != nil || &first[0] != &second[0] {
		t.Errorf("two clients: got separate copies (%v), want a shared one", err)
	}
	releaseFirst()
	releaseFirst() // has no further effect
	if content.text == nil {
		t.Error("the document was removed while a client uses it")
	}
	releaseSecond()
	if content.text != nil || content.users != 0 {
		t.Error("the document is kept without clients")
	}
}
