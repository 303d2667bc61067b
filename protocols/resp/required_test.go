package resp

import "testing"

func TestRequiredTranscripts(t *testing.T) {
	transcripts(t, "testdata/required/*.txt", func() coreConfig {
		c := testConfig()
		c.required = true
		return c
	})
}
