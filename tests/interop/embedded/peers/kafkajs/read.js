// Reads a topic from its beginning with kafkajs: one value a line, as many as asked for.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, count] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: "kafkajs" });
let left = Number(count);

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    eachMessage: async ({ message }) => {
      console.log(message.value.toString());
      left -= 1;
      if (left === 0) setImmediate(() => consumer.disconnect());
    },
  });
}

main();
