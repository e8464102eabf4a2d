package writes

import (
	"errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/storage"
)

// translate turns an error of the store into the one that clients know; op is what the
// write does.
func (w *Writer) translate(r *Request, op admission.Operation, err error) error {
	var unreadable *storage.UnreadableError
	switch {
	case !errors.As(err, &unreadable):
		return r.ref().Translate(err)
	case op == admission.Delete:
		return w.Damage.OfObject(unreadable)
	}
	return w.Damage.OfWrite(unreadable)
}
