// Reads a topic's partition from its beginning with kafka-go's Reader: one value a line, as many as asked for.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, Topic: topic, Partition: 0, MaxBytes: 1 << 20, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	for ; count > 0; count-- {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(message.Value))
	}
}
